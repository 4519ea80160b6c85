"""Inst: one instruction with logical values (counts, unit names, choices), independent of its bits."""
from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..errors import EncodeError
from .fields import NUMBERS, OPERANDS, Value, check, default, limits
from .table import BY_MNEMONIC, Field, Instruction

_INDEX: dict[str, dict[str, int]] = {
    name: {slot.field.name: i for i, slot in enumerate(slots)} for name, slots in OPERANDS.items()
}
#: Of every operand: field, value if none is given, and limits between which any int is a value (1 to 0 where `check`
#: must see it).
_CHECKS: dict[str, tuple[tuple[Field, Value, int, int], ...]] = {
    name: tuple((slot.field, default(slot.field), *(limits(slot.field) if slot.field.kind in NUMBERS else (1, 0)))
                for slot in slots) for name, slots in OPERANDS.items()
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

    @cached_property
    def unit(self) -> str:
        return BY_MNEMONIC[self.mnemonic].unit

    @cached_property
    def wait_units(self) -> tuple[str, ...]:
        """Units whose token this instruction takes; empty for instructions without tokens."""
        return self.values[_INDEX[self.mnemonic]["wait"]] if "wait" in _INDEX[self.mnemonic] else ()

    @cached_property
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
            value = self.values[_INDEX[self.mnemonic][name]]
        except KeyError:
            known = _names(self.mnemonic)
            raise AttributeError(f"{self.mnemonic} has no field {name!r}; it has {known}") from None
        self.__dict__[name] = value  # the next time it is found without a search
        return value

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
    values = []
    for field, otherwise, least, most in _CHECKS[mnemonic]:
        value = fields.get(field.name, otherwise)
        if value is otherwise or (type(value) is int and least <= value <= most):
            values.append(value)
        else:
            values.append(check(mnemonic, field, value))
    return Inst(mnemonic, tuple(values), bytes(payload))


def _names(mnemonic: str) -> str:
    return ", ".join(_INDEX[mnemonic]) or "none"
