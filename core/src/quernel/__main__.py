"""`python -m quernel`: the command line where its script is not on the path."""

from quernel.cli import main

if __name__ == "__main__":
    main()
