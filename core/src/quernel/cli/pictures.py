"""Reading and writing pictures as arrays of shape (3, height, width), f32, 0 to 1."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click
import numpy as np

__all__ = ["prepare_folder", "read_picture", "write_picture"]


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        from quernel.installing import install_extra

        raise click.ClickException(f"pictures need Pillow: {install_extra('demo')}") from None
    return Image


def read_picture(path: Path) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The picture in a file of any format that Pillow reads, turned as its camera says.

    Raises:
        click.ClickException: it is no picture.
    """
    image = _pillow()
    from PIL import ImageOps

    try:
        with image.open(path) as opened:
            turned = ImageOps.exif_transpose(opened)
            if turned.mode == "F":
                raise click.ClickException(f"{path} holds floats without a scale; save it with 8 bits a colour")
            colours = np.asarray(turned.convert("RGB"), np.float32)
    except (OSError, ValueError, image.DecompressionBombError) as error:
        raise click.ClickException(f"{path} cannot be read as a picture: {error}") from error
    return np.ascontiguousarray(colours.transpose(2, 0, 1)) / np.float32(255)


def prepare_folder(folder: Path) -> None:
    """Makes the folder for pictures and makes sure that they can be written there.

    Raises:
        click.ClickException: they cannot.
    """
    _pillow()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise click.ClickException(
            f"cannot write to {folder}: {error.strerror}; choose another folder with --output"
        ) from error


def write_picture(path: Path, picture: np.ndarray[Any, Any]) -> None:
    """Writes (3, height, width) in colour, or (height, width) in grey; values beyond 0 to 1 are clipped.

    Raises:
        click.ClickException: nothing can be written there.
    """
    levels = np.rint(np.clip(picture, 0, 1) * 255).astype(np.uint8)
    image = _pillow().fromarray(levels if levels.ndim == 2 else levels.transpose(1, 2, 0))
    try:
        image.save(path)
    except OSError as error:
        raise click.ClickException(
            f"cannot write {path}: {error.strerror}; choose another folder with --output"
        ) from error
