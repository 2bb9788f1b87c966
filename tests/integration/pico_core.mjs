// Compares the emulated Pico's core.mjs with rp2040js: every opcode, in random states of the processor.
//
//   node pico_core.mjs MACHINE STATES
//
// MACHINE: the folder of core.mjs and its node_modules. STATES: the number of states for each opcode. Prints the number
// of compared instructions; or the first difference, and then ends with 1.
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const [machine, states] = [process.argv[2], Number(process.argv[3])];
const load = (...parts) => import(pathToFileURL(path.resolve(machine, ...parts)).href);
const { RP2040 } = await load('node_modules/rp2040js/dist/esm/index.js');
const { fastCore } = await load('core.mjs');

const RAM = 0x20000000;
const FLASH = 0x10000000;
const SIO = 0xd0000000;
const DPRAM = 0x50100000; // of the USB controller
const FLAGS = ['N', 'Z', 'C', 'V'];
const STATE = [...FLAGS, 'PM', 'SPSEL', 'currentMode', 'IPSR', 'waiting', 'eventRegistered', 'pendingSVCall', 'cycles'];

let seed = 20260101;
function random(n) {
  seed ^= seed << 13; // xorshift32
  seed ^= seed >>> 17;
  seed ^= seed << 5;
  return (seed >>> 0) % n;
}

function pick(...makers) {
  return makers[random(makers.length)]() >>> 0;
}

// Numbers and addresses where instructions might differ: at the ends of memories, misaligned, in the chip's registers.
function value(ramBytes) {
  return pick(
    () => random(2 ** 32),
    () => random(64),
    () => 2 ** 32 - random(64),
    () => 2 ** 31 - random(4) + random(4),
    () => RAM + 4 * random(ramBytes / 4),
    () => RAM + random(ramBytes),
    () => RAM + ramBytes - random(40),
    () => RAM - random(40),
    () => FLASH + random(1 << 16),
    () => FLASH + (16 << 20) - random(40),
    () => random(1 << 14),
    () => SIO + 4 * random(8),
    () => DPRAM + 4 * random(64),
    () => 0xfffffff1 + 8 * random(2),
  );
}

// A halfword at an odd address ends in a fault on the chip; what rp2040js makes of it depends on how it got the address.
function faults(opcode, r) {
  const half = opcode >>> 12 === 0b1000 || [0b0101001, 0b0101101, 0b0101111].includes(opcode >>> 9);
  const offset = opcode >>> 12 === 0b1000 ? 0 : r[(opcode >>> 6) & 7];
  return half && ((r[(opcode >>> 3) & 7] + offset) & 1) === 1;
}

function make(bootrom, flash, ram) {
  const mcu = new RP2040();
  mcu.logger = { debug() {}, info() {}, warn() {}, error() {} };
  mcu.loadBootrom(bootrom);
  mcu.flash.set(flash);
  mcu.sram.set(ram);
  mcu.heard = []; // by the chip's registers
  const registers = {
    readUint32: (offset) => mcu.heard.push(offset),
    writeUint32: (...what) => mcu.heard.push(...what),
    writeUint32Atomic: (...what) => mcu.heard.push(...what),
  };
  for (const base of Object.keys(mcu.peripherals)) mcu.peripherals[base] = registers;
  mcu.ppb = mcu.sio = registers;
  mcu.usbCtrl.DPRAMUpdated = mcu.onBreak = (...what) => mcu.heard.push(...what);
  return mcu;
}

const bytes = (n) => Uint8Array.from({ length: n }, () => random(256));
const bootrom = new Uint32Array(bytes(4096 * 4).buffer);
const flash = bytes(1 << 16);
const ram = bytes(264 << 10);
const [slow, fast] = [make(bootrom, flash, ram), make(bootrom, flash, ram)];
const ramBytes = slow.sram.length;
const execute = fastCore(fast);
const once = () => true;

function differences() {
  const found = STATE.filter((name) => slow.core[name] !== fast.core[name]);
  for (let i = 0; i < 16; i++) if (slow.core.registers[i] !== fast.core.registers[i]) found.push(`r${i}`);
  if (slow.clock.nanos !== fast.clock.nanos) found.push('nanos');
  if (slow.heard.join() !== fast.heard.join()) found.push('registers of the chip');
  return found;
}

const sameMemory = () => Buffer.compare(slow.sram, fast.sram) === 0 && Buffer.compare(slow.usbDPRAM, fast.usbDPRAM) === 0;

let compared = 0;
for (let opcode = 0; opcode < 1 << 16; opcode++) {
  for (let i = 0; i < states; i++) {
    const at = pick(() => FLASH + 2 * random(1 << 15), () => RAM + 2 * random(ramBytes / 2 - 1), () => 2 * random(1 << 13));
    const next = pick(() => random(1 << 16), () => 0xd000 | random(1 << 14));
    const set = Array.from({ length: 16 }, () => value(ramBytes));
    if (faults(opcode, set)) continue;
    const flags = FLAGS.map(() => random(2) === 1);
    const handler = random(8) === 0;
    for (const mcu of [slow, fast]) {
      for (const [address, half] of [[at, opcode], [at + 2, next]]) {
        if (address >= RAM) new DataView(mcu.sram.buffer, mcu.sram.byteOffset).setUint16(address - RAM, half, true);
        else if (address >= FLASH) mcu.flashView.setUint16(address - FLASH, half, true);
        else new Uint16Array(mcu.bootrom.buffer)[address >>> 1] = half;
      }
      const { core } = mcu;
      core.registers.set(set);
      core.SP = set[13];
      core.PC = at;
      FLAGS.forEach((name, j) => (core[name] = flags[j]));
      core.currentMode = handler ? 1 : 0;
      core.waiting = core.interruptsUpdated = core.pendingSVCall = false;
      core.pendingInterrupts = 0;
      core.SPSEL = 0;
      core.cycles = 0;
      mcu.heard.length = 0;
    }
    slow.clock.tick(slow.core.executeInstruction() * 8);
    execute(1, once);
    compared++;
    const different = differences();
    if (different.length || (opcode % 64 === 0 && i === 0 && !sameMemory())) {
      const where = different.map((name) => `${name}: ${slow.core[name] ?? ''} ${fast.core[name] ?? ''}`);
      console.log(`opcode ${opcode.toString(16)} ${next.toString(16)} at ${at.toString(16)}: ${where.join(', ') || 'memory'}`);
      console.log(set.map((register) => register.toString(16)).join(' '), flags.join(), slow.core.registers.join(), fast.core.registers.join());
      process.exit(1);
    }
  }
}
if (!sameMemory()) {
  console.log('memory differs in the end');
  process.exit(1);
}
console.log(compared);
