"""THE register map of a device: data only. wia_regs.h and the tables in docs/porting.md come from it."""
from __future__ import annotations

from dataclasses import dataclass

from .layout import TARGET_NUMBERS

#: Value of the ID register: the bytes "WIA1" as a little-endian word.
DEVICE_ID = int.from_bytes(b"WIA1", "little")

#: Bytes of the register window.
WINDOW_BYTES = 0x200


@dataclass(frozen=True)
class Bit:
    """A named bit of a register."""

    name: str
    bit: int
    meaning: str


@dataclass(frozen=True)
class Register:
    """`count` 32-bit registers from byte `offset`. access: "read" | "write" | "both"."""

    name: str
    offset: int
    access: str
    meaning: str
    count: int = 1
    bits: tuple[Bit, ...] = ()


REGISTERS: tuple[Register, ...] = (
    Register("ID", 0x000, "read", "the bytes \"WIA1\": a device answers and its byte order is right"),
    Register("ISA_VERSION", 0x004, "read", "instruction set version that the device executes"),
    Register("TARGET_DIGEST", 0x010, "read", "target digest as in an image header, four little-endian words", 4),
    Register("CONTROL", 0x020, "write", "commands; 0 does nothing", 1, (
        Bit("START", 0, "run the bound program; ignored while busy"),
        Bit("ABORT", 1, "stop all units and forget the run; STATUS becomes 0 when that is done"),
        Bit("ACKNOWLEDGE", 2, "clear done and fault, and with them the interrupt"),
    )),
    Register("STATUS", 0x024, "read", "state; the interrupt line is done or fault", 1, (
        Bit("BUSY", 0, "a program is running"),
        Bit("DONE", 1, "the program reached halt and every store is visible in memory"),
        Bit("FAULT", 2, "the program was stopped; FAULT_CODE and FAULT_OFFSET say why and where"),
    )),
    Register("FAULT_CODE", 0x028, "read", "number of the fault, a two's complement value of wia_errors.h"),
    Register("FAULT_OFFSET", 0x02C, "read", "byte offset of the faulting instruction in the program"),
    Register("PROGRAM_ADDRESS_LOW", 0x030, "both", "low word of the program's address, a multiple of 64"),
    Register("PROGRAM_ADDRESS_HIGH", 0x034, "both", "high word of the program's address"),
    Register("PROGRAM_BYTES", 0x038, "both", "bytes of the program; fetching past them is a fault"),
    Register("CYCLES_LOW", 0x03C, "read", "cycles of the last finished run, low word"),
    Register("CYCLES_HIGH", 0x040, "read", "cycles of the last finished run, high word"),
    Register("BINDING_INDEX", 0x044, "both", "buffer, 0 to 255, that the next four registers describe"),
    Register("BINDING_ADDRESS_LOW", 0x048, "both", "low word of the buffer's address"),
    Register("BINDING_ADDRESS_HIGH", 0x04C, "both", "high word of the buffer's address"),
    Register("BINDING_BYTES", 0x050, "both", "bytes of the buffer; after reset 0, every access a fault"),
    Register("BINDING_ACCESS", 0x054, "both", "what the program may do with the buffer", 1, (
        Bit("READ", 0, "load is allowed"),
        Bit("WRITE", 1, "store is allowed"),
    )),
    Register("TARGET_NUMBER", 0x100, "read", "hardware numbers in the order of an image's target section",
             TARGET_NUMBERS),
)
