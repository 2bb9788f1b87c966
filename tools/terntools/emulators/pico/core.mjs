// The common instructions of the emulated Pico, found by one jump where rp2040js goes through a row of comparisons, on
// RAM, flash and boot ROM. All else (the chip's registers, exceptions, rare instructions) is left to rp2040js. Registers,
// flags, memory and cycles are as if it did everything: tests/integration/pico_core.mjs compares them.
const RAM = 0x20000000;
const FLASH = 0x10000000;
export const CYCLE_NANOS = 8; // 125 MHz

// The first bits of each instruction; its number, from 1, is its case below.
const INSTRUCTIONS = [
  '00000', // 1 LSLS
  '00001', // 2 LSRS
  '00010', // 3 ASRS
  '0001100', // 4 ADDS
  '0001101', // 5 SUBS
  '0001110', // 6 ADDS
  '0001111', // 7 SUBS
  '00100', // 8 MOVS
  '00101', // 9 CMP
  '00110', // 10 ADDS
  '00111', // 11 SUBS
  '0100000000', // 12 ANDS
  '0100000001', // 13 EORS
  '0100000010', // 14 LSLS
  '0100000011', // 15 LSRS
  '0100000100', // 16 ASRS
  '0100000101', // 17 ADCS
  '0100000110', // 18 SBCS
  '0100000111', // 19 RORS
  '0100001000', // 20 TST
  '0100001001', // 21 NEGS
  '0100001010', // 22 CMP
  '0100001011', // 23 CMN
  '0100001100', // 24 ORRS
  '0100001101', // 25 MULS
  '0100001110', // 26 BICS
  '0100001111', // 27 MVNS
  '01000100', // 28 ADD
  '01000101', // 29 CMP
  '01000110', // 30 MOV
  '010001110', // 31 BX
  '010001111', // 32 BLX
  '01001', // 33 LDR
  '0101000', // 34 STR
  '0101001', // 35 STRH
  '0101010', // 36 STRB
  '0101011', // 37 LDRSB
  '0101100', // 38 LDR
  '0101101', // 39 LDRH
  '0101110', // 40 LDRB
  '0101111', // 41 LDRSH
  '01100', // 42 STR
  '01101', // 43 LDR
  '01110', // 44 STRB
  '01111', // 45 LDRB
  '10000', // 46 STRH
  '10001', // 47 LDRH
  '10010', // 48 STR
  '10011', // 49 LDR
  '10101', // 50 ADD
  '101100000', // 51 ADD
  '101100001', // 52 SUB
  '1011001000', // 53 SXTH
  '1011001001', // 54 SXTB
  '1011001010', // 55 UXTH
  '1011001011', // 56 UXTB
  '1011010', // 57 PUSH
  '1011110', // 58 POP
  '11000', // 59 STMIA
  '11001', // 60 LDMIA
  '11010000', // 61 BEQ
  '11010001', // 62 BNE
  '11010010', // 63 BCS
  '11010011', // 64 BCC
  '11010100', // 65 BMI
  '11010101', // 66 BPL
  '11010110', // 67 BVS
  '11010111', // 68 BVC
  '11011000', // 69 BHI
  '11011001', // 70 BLS
  '11011010', // 71 BGE
  '11011011', // 72 BLT
  '11011100', // 73 BGT
  '11011101', // 74 BLE
  '11100', // 75 B
  '11110', // 76 BL
];
const KIND = new Uint8Array(1 << 10); // by the first ten bits
INSTRUCTIONS.forEach((bits, i) => {
  const rest = 10 - bits.length;
  KIND.fill(i + 1, parseInt(bits, 2) << rest, (parseInt(bits, 2) + 1) << rest);
});
const ONES = Uint8Array.from({ length: 512 }, (_, i) => i.toString(2).replaceAll('0', '').length);

// What executes instructions of `mcu`, `most` at a time, until it waits or `goesOn` says no, and returns how many.
// With a profiler, each instruction is executed by its `step`.
export function fastCore(mcu, profiler = null) {
  const { core, clock } = mcu;
  const r = core.registers;
  const ram8 = mcu.sram;
  const ram16 = new Uint16Array(ram8.buffer, ram8.byteOffset, ram8.length >> 1);
  const ram32 = new Uint32Array(ram8.buffer, ram8.byteOffset, ram8.length >> 2);
  const flash8 = mcu.flash;
  const flash16 = new Uint16Array(flash8.buffer, flash8.byteOffset, flash8.length >> 1);
  const flash32 = new Uint32Array(flash8.buffer, flash8.byteOffset, flash8.length >> 2);
  const rom32 = mcu.bootrom;
  const rom16 = new Uint16Array(rom32.buffer);
  const romBytes = rom32.byteLength;
  const ramBytes = ram8.length;
  const flashBytes = flash8.length;
  let cycles = 0; // of a load

  function load32(address) {
    cycles = 2;
    if ((address & 3) === 0) {
      const inRam = (address - RAM) >>> 0;
      if (inRam < ramBytes) return ram32[inRam >>> 2];
      const inFlash = (address - FLASH) >>> 0;
      if (inFlash < flashBytes) return flash32[inFlash >>> 2];
      if (address < romBytes) return rom32[address >>> 2];
    }
    cycles = 1 + core.cyclesIO(address);
    return mcu.readUint32(address);
  }

  function load16(address) {
    cycles = 2;
    if ((address & 1) === 0) {
      const inRam = (address - RAM) >>> 0;
      if (inRam < ramBytes) return ram16[inRam >>> 1];
      const inFlash = (address - FLASH) >>> 0;
      if (inFlash < flashBytes) return flash16[inFlash >>> 1];
    }
    cycles = 1 + core.cyclesIO(address);
    return mcu.readUint16(address);
  }

  function load8(address) {
    cycles = 2;
    const inRam = (address - RAM) >>> 0;
    if (inRam < ramBytes) return ram8[inRam];
    const inFlash = (address - FLASH) >>> 0;
    if (inFlash < flashBytes) return flash8[inFlash];
    cycles = 1 + core.cyclesIO(address);
    return mcu.readUint8(address);
  }

  function store32(address, value) {
    const inRam = (address - RAM) >>> 0;
    if (inRam < ramBytes && (address & 3) === 0) {
      ram32[inRam >>> 2] = value;
      return 2;
    }
    const taken = 1 + core.cyclesIO(address, true);
    mcu.writeUint32(address, value);
    return taken;
  }

  function store16(address, value) {
    const inRam = (address - RAM) >>> 0;
    if (inRam < ramBytes && (address & 1) === 0) {
      ram16[inRam >>> 1] = value;
      return 2;
    }
    const taken = 1 + core.cyclesIO(address, true);
    mcu.writeUint16(address, value);
    return taken;
  }

  function store8(address, value) {
    const inRam = (address - RAM) >>> 0;
    if (inRam < ramBytes) {
      ram8[inRam] = value;
      return 2;
    }
    const taken = 1 + core.cyclesIO(address, true);
    mcu.writeUint8(address, value);
    return taken;
  }

  function add(a, b) {
    const sum = a + b;
    const result = sum | 0;
    core.N = result < 0;
    core.Z = result === 0;
    core.C = sum > 0xffffffff;
    core.V = ((a ^ result) & (b ^ result)) < 0;
    return result;
  }

  function subtract(a, b) {
    const result = (a - b) | 0;
    core.N = result < 0;
    core.Z = result === 0;
    core.C = a >= b;
    core.V = ((a ^ b) & (a ^ result)) < 0;
    return result;
  }

  function flags(value) {
    core.N = value < 0;
    core.Z = value === 0;
  }

  function set(d, value) {
    r[d] = value;
    flags(value);
  }

  function branch(taken, pc, opcode) {
    r[15] = taken ? pc + 4 + ((opcode << 24) >> 23) : pc + 2;
    return taken ? 2 : 1;
  }

  function call(opcode, pc) {
    const inFlash = (pc + 2 - FLASH) >>> 0;
    if (inFlash >= flashBytes) return 0;
    const low = flash16[inFlash >>> 1];
    if ((low & 0xd000) !== 0xd000) return 0;
    const sign = (opcode << 21) >> 31; // all ones or none
    const i1 = ~((low >>> 13) ^ sign) & 1;
    const i2 = ~((low >>> 11) ^ sign) & 1;
    const offset = (sign << 24) | (i1 << 23) | (i2 << 22) | ((opcode & 0x3ff) << 12) | ((low & 0x7ff) << 1);
    r[14] = (pc + 4) | 1;
    r[15] = pc + 4 + offset;
    return 3;
  }

  function push(opcode, pc) {
    const count = ONES[opcode & 0x1ff];
    const inRam = (r[13] - 4 * count - RAM) >>> 0;
    if (inRam + 4 * count > ramBytes) return 0;
    let at = inRam >>> 2;
    for (let i = 0, rest = opcode & 0xff; rest; i++, rest >>>= 1) if (rest & 1) ram32[at++] = r[i];
    if (opcode & 0x100) ram32[at] = r[14];
    r[13] -= 4 * count;
    r[15] = pc + 2;
    return opcode & 0x100 ? count : count + 1;
  }

  function pop(opcode, pc) {
    const count = ONES[opcode & 0x1ff];
    const inRam = (r[13] - RAM) >>> 0;
    if (inRam + 4 * count > ramBytes) return 0;
    let at = inRam >>> 2;
    let to = pc + 2;
    if (opcode & 0x100) {
      to = ram32[at + count - 1];
      if (to >>> 28 === 15) return 0; // from an exception
    }
    for (let i = 0, rest = opcode & 0xff; rest; i++, rest >>>= 1) if (rest & 1) r[i] = ram32[at++];
    r[13] += 4 * count;
    r[15] = to & ~1;
    return opcode & 0x100 ? count + 2 : count + 1;
  }

  function storeMany(opcode, pc) {
    const base = (opcode >>> 8) & 7;
    const inRam = (r[base] - RAM) >>> 0;
    if (inRam + 32 > ramBytes || inRam & 3) return 0;
    let at = inRam >>> 2;
    for (let i = 0, rest = opcode & 0xff; rest; i++, rest >>>= 1) if (rest & 1) ram32[at++] = r[i];
    const count = ONES[opcode & 0xff];
    if (!((opcode >>> base) & 1)) r[base] += 4 * count;
    r[15] = pc + 2;
    return 1 + count;
  }

  function loadMany(opcode, pc) {
    const base = (opcode >>> 8) & 7;
    let address = r[base];
    for (let i = 0, rest = opcode & 0xff; rest; i++, rest >>>= 1) {
      if (rest & 1) {
        r[i] = load32(address);
        address = (address + 4) >>> 0;
      }
    }
    if (!((opcode >>> base) & 1)) r[base] = address;
    r[15] = pc + 2;
    return 1 + ONES[opcode & 0xff];
  }

  // One instruction at pc; returns its cycles, or 0 where it is left to rp2040js.
  function execute(opcode, pc) {
    const d = opcode & 7;
    const m = (opcode >>> 3) & 7;
    let shift, input, to, from;
    switch (KIND[opcode >>> 6]) {
      case 1: // LSLS
        if ((opcode >>> 6) & 31) core.C = (r[m] & (1 << (32 - ((opcode >>> 6) & 31)))) !== 0;
        set(d, r[m] << ((opcode >>> 6) & 31));
        break;
      case 2: // LSRS
        input = r[m];
        shift = (opcode >>> 6) & 31 || 32;
        core.C = ((input >>> (shift - 1)) & 1) !== 0;
        set(d, shift < 32 ? (input >>> shift) | 0 : 0);
        break;
      case 3: // ASRS
        input = r[m] | 0;
        shift = (opcode >>> 6) & 31 || 32;
        core.C = ((input >> (shift - 1)) & 1) !== 0;
        set(d, input >> Math.min(shift, 31));
        break;
      case 4: // ADDS
        r[d] = add(r[m], r[(opcode >>> 6) & 7]);
        break;
      case 5: // SUBS
        r[d] = subtract(r[m], r[(opcode >>> 6) & 7]);
        break;
      case 6: // ADDS
        r[d] = add(r[m], (opcode >>> 6) & 7);
        break;
      case 7: // SUBS
        r[d] = subtract(r[m], (opcode >>> 6) & 7);
        break;
      case 8: // MOVS
        set((opcode >>> 8) & 7, opcode & 0xff);
        break;
      case 9: // CMP
        subtract(r[(opcode >>> 8) & 7], opcode & 0xff);
        break;
      case 10: // ADDS
        r[(opcode >>> 8) & 7] = add(r[(opcode >>> 8) & 7], opcode & 0xff);
        break;
      case 11: // SUBS
        r[(opcode >>> 8) & 7] = subtract(r[(opcode >>> 8) & 7], opcode & 0xff);
        break;
      case 12: // ANDS
        set(d, r[d] & r[m]);
        break;
      case 13: // EORS
        set(d, r[d] ^ r[m]);
        break;
      case 14: // LSLS
        shift = r[m] & 0xff;
        if (shift) core.C = (r[d] & (1 << (32 - shift))) !== 0;
        set(d, shift < 32 ? r[d] << shift : 0);
        break;
      case 15: // LSRS
        shift = r[m] & 0xff;
        input = r[d];
        core.C = shift <= 32 && ((input >>> (shift - 1)) & 1) !== 0;
        set(d, shift < 32 ? (input >>> shift) | 0 : 0);
        break;
      case 16: // ASRS
        shift = Math.min(r[m] & 0xff, 32);
        input = r[d] | 0;
        core.C = (input & (1 << (shift - 1))) !== 0;
        set(d, input >> Math.min(shift, 31));
        break;
      case 17: // ADCS
        r[d] = core.addUpdateFlags(r[m], r[d] + (core.C ? 1 : 0));
        break;
      case 18: // SBCS
        r[d] = core.substractUpdateFlags(r[d], r[m] + (core.C ? 0 : 1));
        break;
      case 19: // RORS
        shift = r[m] & 31;
        set(d, (r[d] >>> shift) | (r[d] << (32 - shift)));
        core.C = core.N;
        break;
      case 20: // TST
        flags(r[d] & r[m]);
        break;
      case 21: // NEGS
        r[d] = subtract(0, r[m]);
        break;
      case 22: // CMP
        subtract(r[d], r[m]);
        break;
      case 23: // CMN
        add(r[d], r[m]);
        break;
      case 24: // ORRS
        set(d, r[d] | r[m]);
        break;
      case 25: // MULS
        set(d, Math.imul(r[d], r[m]));
        break;
      case 26: // BICS
        set(d, r[d] & ~r[m]);
        break;
      case 27: // MVNS
        set(d, ~r[m]);
        break;
      case 28: // ADD
        to = d | ((opcode >>> 4) & 8);
        from = (opcode >>> 3) & 15;
        if (to === 13 || to === 15 || from === 15) return 0;
        r[to] += r[from];
        break;
      case 29: // CMP
        to = d | ((opcode >>> 4) & 8);
        from = (opcode >>> 3) & 15;
        if (to === 15 || from === 15) return 0;
        subtract(r[to], r[from]);
        break;
      case 30: // MOV
        to = d | ((opcode >>> 4) & 8);
        from = (opcode >>> 3) & 15;
        if (to === 13 || from === 15) return 0;
        if (to === 15) {
          r[15] = r[from] & ~1;
          return 2;
        }
        r[to] = r[from];
        break;
      case 31: // BX
        from = (opcode >>> 3) & 15;
        if (d || from === 15 || r[from] >>> 28 === 15) return 0; // 15: from an exception
        r[15] = r[from] & ~1;
        return 2;
      case 32: // BLX
        from = (opcode >>> 3) & 15;
        if (d || from >= 14) return 0;
        r[14] = (pc + 2) | 1;
        r[15] = r[from] & ~1;
        return 2;
      case 33: // LDR
        r[(opcode >>> 8) & 7] = load32(((pc + 4) & ~3) + ((opcode & 0xff) << 2));
        r[15] = pc + 2;
        return cycles;
      case 34: // STR
        r[15] = pc + 2;
        return store32((r[m] + r[(opcode >>> 6) & 7]) >>> 0, r[d]);
      case 35: // STRH
        r[15] = pc + 2;
        return store16((r[m] + r[(opcode >>> 6) & 7]) >>> 0, r[d]);
      case 36: // STRB
        r[15] = pc + 2;
        return store8((r[m] + r[(opcode >>> 6) & 7]) >>> 0, r[d]);
      case 37: // LDRSB
        r[d] = (load8((r[m] + r[(opcode >>> 6) & 7]) >>> 0) << 24) >> 24;
        r[15] = pc + 2;
        return cycles;
      case 38: // LDR
        r[d] = load32((r[m] + r[(opcode >>> 6) & 7]) >>> 0);
        r[15] = pc + 2;
        return cycles;
      case 39: // LDRH
        r[d] = load16((r[m] + r[(opcode >>> 6) & 7]) >>> 0);
        r[15] = pc + 2;
        return cycles;
      case 40: // LDRB
        r[d] = load8((r[m] + r[(opcode >>> 6) & 7]) >>> 0);
        r[15] = pc + 2;
        return cycles;
      case 41: // LDRSH
        r[d] = (load16((r[m] + r[(opcode >>> 6) & 7]) >>> 0) << 16) >> 16;
        r[15] = pc + 2;
        return cycles;
      case 42: // STR
        r[15] = pc + 2;
        return store32((r[m] + ((opcode >>> 4) & 0x7c)) >>> 0, r[d]);
      case 43: // LDR
        r[d] = load32((r[m] + ((opcode >>> 4) & 0x7c)) >>> 0);
        r[15] = pc + 2;
        return cycles;
      case 44: // STRB
        r[15] = pc + 2;
        return store8((r[m] + ((opcode >>> 6) & 31)) >>> 0, r[d]);
      case 45: // LDRB
        r[d] = load8((r[m] + ((opcode >>> 6) & 31)) >>> 0);
        r[15] = pc + 2;
        return cycles;
      case 46: // STRH
        r[15] = pc + 2;
        return store16((r[m] + ((opcode >>> 5) & 0x3e)) >>> 0, r[d]);
      case 47: // LDRH
        r[d] = load16((r[m] + ((opcode >>> 5) & 0x3e)) >>> 0);
        r[15] = pc + 2;
        return cycles;
      case 48: // STR
        r[15] = pc + 2;
        return store32((r[13] + ((opcode & 0xff) << 2)) >>> 0, r[(opcode >>> 8) & 7]);
      case 49: // LDR
        r[(opcode >>> 8) & 7] = load32((r[13] + ((opcode & 0xff) << 2)) >>> 0);
        r[15] = pc + 2;
        return cycles;
      case 50: // ADD
        r[(opcode >>> 8) & 7] = r[13] + ((opcode & 0xff) << 2);
        break;
      case 51: // ADD
        r[13] += (opcode & 0x7f) << 2;
        break;
      case 52: // SUB
        r[13] -= (opcode & 0x7f) << 2;
        break;
      case 53: // SXTH
        r[d] = (r[m] << 16) >> 16;
        break;
      case 54: // SXTB
        r[d] = (r[m] << 24) >> 24;
        break;
      case 55: // UXTH
        r[d] = r[m] & 0xffff;
        break;
      case 56: // UXTB
        r[d] = r[m] & 0xff;
        break;
      case 57: // PUSH
        return push(opcode, pc);
      case 58: // POP
        return pop(opcode, pc);
      case 59: // STMIA
        return storeMany(opcode, pc);
      case 60: // LDMIA
        return loadMany(opcode, pc);
      case 61: // BEQ
        return branch(core.Z, pc, opcode);
      case 62: // BNE
        return branch(!core.Z, pc, opcode);
      case 63: // BCS
        return branch(core.C, pc, opcode);
      case 64: // BCC
        return branch(!core.C, pc, opcode);
      case 65: // BMI
        return branch(core.N, pc, opcode);
      case 66: // BPL
        return branch(!core.N, pc, opcode);
      case 67: // BVS
        return branch(core.V, pc, opcode);
      case 68: // BVC
        return branch(!core.V, pc, opcode);
      case 69: // BHI
        return branch(core.C && !core.Z, pc, opcode);
      case 70: // BLS
        return branch(!core.C || core.Z, pc, opcode);
      case 71: // BGE
        return branch(core.N === core.V, pc, opcode);
      case 72: // BLT
        return branch(core.N !== core.V, pc, opcode);
      case 73: // BGT
        return branch(core.N === core.V && !core.Z, pc, opcode);
      case 74: // BLE
        return branch(core.N !== core.V || core.Z, pc, opcode);
      case 75: // B
        r[15] = pc + 4 + ((opcode << 21) >> 20);
        return 2;
      case 76: // BL
        return call(opcode, pc);
      default:
        return 0;
    }
    r[15] = pc + 2;
    return 1;
  }

  const slowly = core.executeInstruction.bind(core);

  function step() {
    if (core.interruptsUpdated) return slowly();
    const pc = r[15];
    const inFlash = (pc - FLASH) >>> 0;
    let opcode;
    if (inFlash < flashBytes) opcode = flash16[inFlash >>> 1];
    else {
      const inRam = (pc - RAM) >>> 0;
      if (inRam < ramBytes) opcode = ram16[inRam >>> 1];
      else if (pc < romBytes) opcode = rom16[pc >>> 1];
      else return slowly();
    }
    const taken = execute(opcode, pc & ~1);
    if (!taken) return slowly();
    core.cycles += taken;
    return taken;
  }

  const next = profiler ? () => profiler.step(step) : step;

  return (most, goesOn) => {
    let left = most;
    while (left > 0 && !core.waiting && goesOn()) {
      const end = clock.nanosCounter + next() * CYCLE_NANOS;
      if (clock.nextAlarm !== null && clock.nextAlarm.nanos <= end) clock.tick(end - clock.nanosCounter);
      else clock.nanosCounter = end;
      left--;
    }
    return most - left;
  };
}
