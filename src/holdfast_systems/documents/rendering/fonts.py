"""Where fonts are for what Typst's own don't have: Chinese, Japanese, Korean, Thai, emoji."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

# Of the Debian packages fonts-noto-core, fonts-noto-cjk and fonts-noto-color-emoji. All fonts of a
# machine would be more, and nobody could say which one a document gets.
FOLDERS = (Path("/usr/share/fonts/opentype/noto"), Path("/usr/share/fonts/truetype/noto"))


def font_folders(environment: Mapping[str, str] | None = None) -> list[Path]:
    """Those of DOCUMENTS_FONTS, with the separator of PATH, or else the ones above that exist."""
    found = os.environ if environment is None else environment
    named = found.get("DOCUMENTS_FONTS")
    folders = FOLDERS if named is None else map(Path, filter(None, named.split(os.pathsep)))
    return [folder for folder in folders if folder.is_dir()]
