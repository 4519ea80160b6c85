"""Inst: one instruction with logical values (counts, unit names, choices), independent of its bits."""
from __future__ import annotations

from dataclasses import dataclass

from ..errors import EncodeError
from .fields import OPERANDS, Value, check, default
from .table import BY_MNEMONIC, Instruction

_INDEX: dict[str, dict[str, int]] = {
    name: {slot.field.name: i for i, slot in enumerate(slots)} for name, slots in OPERANDS.items()
}
_OWN = frozenset(("mnemonic", "values", "payload"))


@dataclass(frozen=True)
class Inst:
    """`values` has one logical value per operand field in table order; read them as attributes or by name.

    Build it with `inst`, which checks every value. `payload` is the inline data that follows the fields.
    """

    mnemonic: str
    values: tuple[Value, ...]
    payload: bytes = b""

    @property
    def row(self) -> Instruction:
        """The instruction's row of the table."""
        return BY_MNEMONIC[self.mnemonic]

    @property
    def unit(self) -> str:
        return BY_MNEMONIC[self.mnemonic].unit

    @property
    def wait_units(self) -> tuple[str, ...]:
        """Units whose token this instruction takes; empty for instructions without tokens."""
        return self.values[_INDEX[self.mnemonic]["wait"]] if "wait" in _INDEX[self.mnemonic] else ()

    @property
    def signal_units(self) -> tuple[str, ...]:
        """Units that get a token from this instruction; empty for instructions without tokens."""
        return self.values[_INDEX[self.mnemonic]["signal"]] if "signal" in _INDEX[self.mnemonic] else ()

    def __getitem__(self, name: str) -> Value:
        try:
            return self.values[_INDEX[self.mnemonic][name]]
        except KeyError:
            raise EncodeError(f"{self.mnemonic}: no field {name!r}; it has {_names(self.mnemonic)}") from None

    def __getattr__(self, name: str) -> Value:
        if name in _OWN:
            raise AttributeError(name)  # while unpickling or copying nothing is set yet
        try:
            return self.values[_INDEX[self.mnemonic][name]]
        except KeyError:
            known = _names(self.mnemonic)
            raise AttributeError(f"{self.mnemonic} has no field {name!r}; it has {known}") from None

    def replace(self, **changes: object) -> Inst:
        """The same instruction with some fields (or the payload) changed; raises EncodeError like `inst`."""
        fields = dict(zip(_INDEX[self.mnemonic], self.values))
        payload = changes.pop("payload", self.payload)
        if payload != self.payload and "payload_bytes" in fields and "payload_bytes" not in changes:
            del fields["payload_bytes"]
        return inst(self.mnemonic, payload=payload, **{**fields, **changes})  # type: ignore[arg-type]


def inst(mnemonic: str, *, payload: bytes = b"", **fields: object) -> Inst:
    """One checked instruction; fields not given are 0 (minus_one 1, masks empty, enums their first choice).

    `payload_bytes` follows from the payload unless it is given. Raises EncodeError naming instruction, field,
    value and limit.
    """
    index = _INDEX.get(mnemonic)
    if index is None:
        raise EncodeError(f"{mnemonic!r} is no instruction; known are {', '.join(BY_MNEMONIC)}")
    for name in fields:
        if name not in index:
            raise EncodeError(f"{mnemonic}: no field {name!r}; it has {_names(mnemonic)}")
    if "payload_bytes" in index:
        fields.setdefault("payload_bytes", len(payload))
    values = tuple(check(mnemonic, field, fields[field.name]) if field.name in fields else default(field)
                   for field in (slot.field for slot in OPERANDS[mnemonic]))
    return Inst(mnemonic, values, bytes(payload))


def _names(mnemonic: str) -> str:
    return ", ".join(_INDEX[mnemonic]) or "none"
