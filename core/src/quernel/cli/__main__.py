"""`python -m quernel.cli`: the command line where its script is not on the path."""

from quernel.cli import main

main()
