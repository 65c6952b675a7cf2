"""Fonts for the scripts that Typst's own fonts lack: Chinese, Japanese, Korean, Thai, emoji."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

# From the Debian packages fonts-noto-core, fonts-noto-cjk and fonts-noto-color-emoji. With all
# fonts on the machine, nobody could say which one a document gets.
FOLDERS = (Path("/usr/share/fonts/opentype/noto"), Path("/usr/share/fonts/truetype/noto"))


def font_folders(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """List the folders in DOCUMENTS_FONTS, separated as in PATH, or else those in FOLDERS."""
    named = environment.get("DOCUMENTS_FONTS")
    folders = FOLDERS if named is None else map(Path, filter(None, named.split(os.pathsep)))
    return [folder for folder in folders if folder.is_dir()]
