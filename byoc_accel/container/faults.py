"""One-line ImageErrors whose middle part is the text of the C runtime's error code for the same check."""
from __future__ import annotations

from ..errors import C_ERRORS, ImageError

_TEXTS = {error.name: error.text for error in C_ERRORS}


def fault(code: str, where: str, detail: str) -> ImageError:
    """ImageError "where: text of C constant `code`: detail"."""
    return ImageError(f"{where}: {_TEXTS[code]}: {detail}")


def layout_fault(where: str, detail: str) -> ImageError:
    """`fault` of a section or record that is malformed."""
    return fault("WIA_E_LAYOUT", where, detail)
