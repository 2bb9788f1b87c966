// An emulated Pico: the stock MicroPython firmware in rp2040js, with its USB serial port on a Unix socket of its owner's.
//
//   node runner.mjs --bootrom FILE [--firmware FILE] [--flash FILE] [--volume DIR] [--seed N] [--skip-idle]
//                   [--attached] [--profile FILE --symbols FILE ...]
//
// The first line on stdout is {"port": PATH}, in a folder that nobody else may enter, once a host would see the board's
// port, or its boot loader. Time on the device is simulated cycles: while it computes it does not depend on this
// machine. While it is idle it passes as on the clock on the wall, or at once with --skip-idle.
// --firmware is what a new flash holds. --flash keeps the flash in a file, written at each change: to kill the runner
// is to cut the power. --volume is where the USB boot loader shows its volume: a board with an empty flash, or whose
// firmware asks for it, waits there for a .uf2 file, and takes it block by block.
// --seed makes a run repeatable: the ring oscillator's random bits, and when input arrives, at whole milliseconds of
// the device's time, only while it waits, and all that was sent together at once. --attached ends the runner when its
// stdin is closed. --profile is where profile.mjs writes which functions spent the time; --symbols has the addresses of
// those in C.
import fs from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { randomBytes } from 'node:crypto';
import { parseArgs } from 'node:util';
import { ConsoleLogger, LogLevel, RP2040, USBCDC } from 'rp2040js';
import { fastCore } from './core.mjs';
import { ProfileFile, Profiler } from './profile.mjs';

const FLASH_SIZE = 2 << 20;
const INSTRUCTIONS_A_TURN = 100_000; // between looks at the port
const IDLE_STEP_NANOS = 2e6; // how far idle time may run ahead of the wall,
const LATEST_MILLIS = 1000; // and how far behind it a busy machine may let it fall
const USB_PACKET = 64;
const USB_FRAME_NANOS = 1e6;
const SETTLED_NANOS = 2e6; // and after so long a wait
const QUIET_MILLIS = 3; // what the host sends within that time it sends together

const TEMPERATURE_CHANNEL = 4;
const ROOM_TEMPERATURE = Math.round((0.706 / 3.3) * 4095); // 27 degrees Celsius

const PSM = 0x40010;
const WATCHDOG = 0x40058;
const ROSC = 0x40060;
const FRCE_OFF = 0x04;
const PROC1 = 1 << 16;
const ROSC_CTRL = 0x0;
const ROSC_DISABLE = 0xd1e;
const ROSC_RANDOMBIT = 0x1c;
const FIFO_ST = 0x50;
const FIFO_WR = 0x54;
const FIFO_RD = 0x58;
const FIFO_VLD = 1;
const FIFO_RDY = 2;
const UARTDR = 0x00;
const UART_TX_INTERRUPT = 1 << 5;

const UF2_BLOCK = 512;
const UF2_MAGIC = [0x0a324655, 0x9e5d5157];
const UF2_MAGIC_END = 0x0ab16f30;
const UF2_RP2040 = 0xe48bff56;
const UF2_INFO = 'UF2 Bootloader v3.0\nModel: Raspberry Pi RP2\nBoard-ID: RPI-RP2\n';
const XIP_BASE = 0x10000000;
const NO_PORT_MILLIS = 5000; // a firmware without a USB port, or a broken one
const VOLUME_MILLIS = 50; // between looks at the volume
const HANG_UP_MILLIS = 100;

const BKPT_FLASH = 1; // these are bootrom.c's
const BKPT_USB_BOOT = 2;
const BKPT_MISSING = 3;

const { values: options } = parseArgs({
  options: {
    firmware: { type: 'string' },
    bootrom: { type: 'string' },
    flash: { type: 'string' },
    volume: { type: 'string' },
    seed: { type: 'string' },
    'skip-idle': { type: 'boolean', default: false },
    attached: { type: 'boolean', default: false },
    profile: { type: 'string' },
    symbols: { type: 'string', multiple: true },
  },
});

function fail(message) {
  console.error(`emulated Pico: ${message}`);
  process.exit(1);
}

// ---- Flash ----

function openFlash() {
  const image = Buffer.alloc(FLASH_SIZE, 0xff);
  let file = null;
  const exists = options.flash && fs.existsSync(options.flash);
  const content = exists ? options.flash : options.firmware;
  if (content) fs.readFileSync(content).copy(image);
  if (options.flash) file = fs.openSync(options.flash, exists ? 'r+' : 'w+');
  if (file !== null) fs.writeSync(file, image, 0, image.length, 0);
  return { image, file };
}

// ---- Random bits of the ring oscillator ----

function randomBits() {
  if (options.seed !== undefined) {
    let state = (Number(options.seed) * 2654435761 + 1) >>> 0 || 1;
    return () => {
      state ^= state << 13; // xorshift32
      state ^= state >>> 17;
      state ^= state << 5;
      return (state >>> 31) & 1;
    };
  }
  let bytes = randomBytes(4096);
  let next = 0;
  return () => {
    if (next === bytes.length * 8) {
      bytes = randomBytes(4096);
      next = 0;
    }
    const bit = (bytes[next >> 3] >> (next & 7)) & 1;
    next += 1;
    return bit;
  };
}

// ---- The chip, with what rp2040js 1.4.1 lacks ----

// Core 1 is not emulated. What is seen of it: when it leaves reset it sends one zero through the mailbox.
function answerForCore1(mcu) {
  let waiting = 0;
  const psm = mcu.peripherals[PSM];
  const writePsm = psm.writeUint32.bind(psm);
  psm.writeUint32 = (offset, value) => {
    if (offset === FRCE_OFF && psm.frceOff & PROC1 && !(value & PROC1)) waiting = 1;
    writePsm(offset, value);
  };
  const { sio } = mcu;
  const read = sio.readUint32.bind(sio);
  const write = sio.writeUint32.bind(sio);
  sio.readUint32 = (offset) => {
    if (offset === FIFO_ST) return waiting ? FIFO_VLD | FIFO_RDY : FIFO_RDY;
    if (offset === FIFO_RD) {
      waiting = 0;
      return 0;
    }
    return read(offset);
  };
  sio.writeUint32 = (offset, value) => {
    if (offset !== FIFO_ST && offset !== FIFO_WR) write(offset, value);
  };
}

// rp2040js raises a UART's transmit interrupt again as soon as it is cleared, so that machine.UART never comes to
// rest. A PL011 raises it when its FIFO drains, that is, after a byte was sent.
function calmUarts(mcu) {
  for (const uart of mcu.uart) {
    uart.checkInterrupts = () => mcu.setInterrupt(uart.irq, !!(uart.interruptStatus & uart.interruptMask));
    const write = uart.writeUint32.bind(uart);
    uart.writeUint32 = (offset, value) => {
      write(offset, value);
      if (offset === UARTDR) {
        uart.interruptStatus |= UART_TX_INTERRUPT;
        uart.checkInterrupts();
      }
    };
  }
}

function listenToRosc(mcu, bit) {
  const rosc = mcu.peripherals[ROSC];
  const read = rosc.readUint32.bind(rosc);
  const write = rosc.writeUint32.bind(rosc);
  let stopped = false;
  rosc.readUint32 = (offset) => (offset !== ROSC_RANDOMBIT ? read(offset) : stopped ? 1 : bit());
  rosc.writeUint32 = (offset, value) => {
    if (offset === ROSC_CTRL) stopped = ((value >>> 12) & 0xfff) === ROSC_DISABLE;
    write(offset, value);
  };
}

class Pico {
  constructor(flash, bit, onOutput) {
    this.flash = flash;
    this.bit = bit;
    this.onOutput = onOutput;
    this.bootrom = new Uint32Array(4096);
    fs.readFileSync(options.bootrom).copy(Buffer.from(this.bootrom.buffer));
    this.powerOn();
  }

  powerOn() {
    const mcu = new RP2040();
    mcu.logger = new ConsoleLogger(LogLevel.Error, false);
    mcu.loadBootrom(this.bootrom); // it also blanks the flash
    mcu.flash.set(this.flash.image, 0);
    mcu.onBreak = (code) => this.break(code);
    answerForCore1(mcu);
    calmUarts(mcu);
    listenToRosc(mcu, this.bit);
    mcu.adc.channelValues[TEMPERATURE_CHANNEL] = ROOM_TEMPERATURE;
    const watchdog = mcu.peripherals[WATCHDOG];
    if (this.mcu) {
      // what survives a reset by the watchdog
      watchdog.reason = this.mcu.peripherals[WATCHDOG].reason;
      watchdog.scratchData.set(this.mcu.peripherals[WATCHDOG].scratchData);
    }
    watchdog.onWatchdogTrigger = () => {
      watchdog.timer.enable = false; // else rp2040js sets its alarm for the same moment again, and again
      this.resetting = true;
    };
    this.resetting = false;
    this.loader = null;
    this.connected = false;
    this.burst = 0;
    this.lastBusy = 0;
    this.frozen = false;
    if (this.flash.image.readUInt32LE(0) === 0xffffffff) this.startLoader();
    this.mcu = mcu;
    this.profiler = profileFile && new Profiler(mcu, profileFile);
    this.execute = fastCore(mcu, this.profiler);
    this.input = [];
    this.connectUsb(mcu);
  }

  // rp2040js completes a read of the USB port at once, with nothing, and again every 10 us, which keeps TinyUSB busy
  // for ever. A host answers only when it has something to say: the read is left open until then.
  connectUsb(mcu) {
    const cdc = new USBCDC(mcu.usbCtrl);
    this.wanted = 0;
    cdc.onSerialData = (bytes) => this.onOutput(Buffer.from(bytes));
    cdc.onDeviceConnected = () => {
      this.connected = true;
    };
    mcu.usbCtrl.onEndpointRead = (endpoint, size) => {
      if (endpoint === cdc.outEndpoint) {
        this.wanted = size;
        this.feed();
      }
    };
    this.cdc = cdc;
  }

  send(bytes) {
    for (const byte of bytes) this.input.push(byte);
    this.lastInput = performance.now();
    this.feed();
  }

  feed() {
    const ready = options.seed === undefined ? this.input.length : this.burst;
    if (!this.wanted || !ready) return;
    const n = Math.min(this.wanted, ready, USB_PACKET);
    this.wanted = 0;
    this.burst -= Math.min(n, this.burst);
    this.mcu.usbCtrl.endpointReadDone(this.cdc.outEndpoint, Uint8Array.from(this.input.splice(0, n)));
  }

  quietInput() {
    return this.input.length && performance.now() - this.lastInput > QUIET_MILLIS;
  }

  break(code) {
    if (code === BKPT_FLASH) {
      const [offset, length] = this.mcu.core.registers;
      this.flash.image.set(this.mcu.flash.subarray(offset, offset + length), offset);
      if (this.flash.file !== null) fs.writeSync(this.flash.file, this.flash.image, offset, length, offset);
    } else if (code === BKPT_USB_BOOT) {
      this.startLoader();
    } else if (code === BKPT_MISSING) {
      fail('the firmware called a boot ROM function that bootrom.c does not have');
    }
  }

  startLoader() {
    if (!options.volume) fail('it is in its USB boot loader, and there is no --volume to show');
    this.loader = new BootLoader(options.volume, this.flash);
  }

  // Run until it is time to look at the port. Returns the nanoseconds of idle time that passed.
  run() {
    const { mcu } = this;
    const { core, clock } = mcu;
    const goesOn = () => !this.resetting && !this.loader;
    let idle = 0;
    this.frozen = false;
    for (let i = 0; i < INSTRUCTIONS_A_TURN && idle < IDLE_STEP_NANOS && goesOn(); i++) {
      if (core.waiting) {
        const next = clock.nanosToNextAlarm;
        let step = clock.nextAlarm ? Math.max(next, 0) : IDLE_STEP_NANOS;
        if (!options['skip-idle']) step = Math.min(step, IDLE_STEP_NANOS); // input may come before a far alarm
        if (options.seed !== undefined && this.wanted && this.quietInput()) {
          const untilFrame = (USB_FRAME_NANOS - (clock.nanos % USB_FRAME_NANOS)) % USB_FRAME_NANOS;
          if (untilFrame === 0 && clock.nanos - this.lastBusy >= SETTLED_NANOS) {
            this.burst = this.input.length;
            this.feed();
            continue;
          }
          step = Math.min(step, untilFrame || USB_FRAME_NANOS);
        } else if (options.seed !== undefined && !clock.nextAlarm && clock.nanos - this.lastBusy >= SETTLED_NANOS) {
          this.frozen = true; // nothing will happen before there is input: so time stands still
          break;
        }
        clock.tick(step);
        this.profiler?.idle(step);
        idle += step;
      } else {
        i += this.execute(INSTRUCTIONS_A_TURN - i, goesOn) - 1;
        this.lastBusy = clock.nanos;
      }
    }
    return idle;
  }
}

// ---- The USB boot loader ----

class BootLoader {
  constructor(volume, flash) {
    this.volume = volume;
    this.flash = flash;
    this.taken = new Set();
    this.erased = new Set();
    fs.mkdirSync(volume, { recursive: true });
    fs.writeFileSync(path.join(volume, 'INFO_UF2.TXT'), UF2_INFO);
  }

  // Take the blocks that are there; true once that is all of them. Then the volume is gone.
  poll() {
    for (const name of fs.readdirSync(this.volume).filter((one) => one.toLowerCase().endsWith('.uf2'))) {
      const data = fs.readFileSync(path.join(this.volume, name));
      for (let at = 0; at + UF2_BLOCK <= data.length; at += UF2_BLOCK) {
        const count = this.take(data.subarray(at, at + UF2_BLOCK));
        if (count && this.taken.size === count) {
          fs.rmSync(path.join(this.volume, name));
          fs.rmSync(path.join(this.volume, 'INFO_UF2.TXT'));
          return true;
        }
      }
    }
    return false;
  }

  // Program one block; returns how many there are, or 0 where this is not one.
  take(block) {
    const word = (i) => block.readUInt32LE(4 * i);
    const [address, size, number, count, family] = [3, 4, 5, 6, 7].map(word);
    const offset = address - XIP_BASE;
    if (word(0) !== UF2_MAGIC[0] || word(1) !== UF2_MAGIC[1] || word(127) !== UF2_MAGIC_END) return 0;
    if (family !== UF2_RP2040 || size > 476 || offset < 0 || offset + size > FLASH_SIZE) return 0;
    if (!this.taken.has(number)) {
      this.taken.add(number);
      const sector = offset & ~4095;
      if (!this.erased.has(sector)) {
        this.erased.add(sector);
        this.flash.image.fill(0xff, sector, sector + 4096);
      }
      block.copy(this.flash.image, offset, 32, 32 + size);
      if (this.flash.file !== null) fs.writeSync(this.flash.file, this.flash.image, sector, 4096, sector);
    }
    return count;
  }
}

// ---- The port, and the loop ----

let client = null;
let timer = null;
const profileFile = options.profile ? new ProfileFile(options.profile, options.symbols) : null;
const pico = new Pico(openFlash(), randomBits(), (bytes) => client?.write(bytes));

let announced = false;
let due = 0; // when idle time that has passed on the device has passed on the wall, too
const started = performance.now();

function announce() {
  const shows = pico.connected || pico.loader || performance.now() - started > NO_PORT_MILLIS;
  if (announced || !shows || !server.listening) return;
  announced = true;
  console.log(JSON.stringify({ port: server.address() }));
}

function turn() {
  timer = null;
  if (pico.loader) {
    client?.destroy();
    announce();
    if (!pico.loader.poll()) {
      timer = setTimeout(turn, VOLUME_MILLIS);
      return;
    }
    pico.powerOn();
  }
  const idle = pico.run();
  announce();
  if (pico.resetting) {
    pico.powerOn();
    client?.destroy(); // as USB does
  }
  const now = performance.now();
  due = (idle ? Math.max(due, now - LATEST_MILLIS) : now) + idle / 1e6;
  const pause = pico.frozen ? 1 : options['skip-idle'] || pico.input.length ? 0 : due - now;
  if (pause < 1) setImmediate(turn);
  else timer = setTimeout(turn, pause);
}

// Somebody who has hung up may not have been heard yet when the next one comes: that one waits for a moment.
const server = net.createServer((socket) => {
  socket.on('error', () => {});
  if (client && !pico.loader) setTimeout(meet, HANG_UP_MILLIS, socket);
  else meet(socket);
});

function meet(socket) {
  if (socket.destroyed) return;
  if (client || pico.loader) {
    socket.destroy(); // a serial port has one owner; in its boot loader the board has none
    return;
  }
  const leave = () => {
    if (client === socket) client = null;
  };
  client = socket;
  socket.on('data', (bytes) => {
    pico.send(bytes);
    if (timer) {
      clearTimeout(timer);
      turn();
    }
  });
  socket.on('end', leave);
  socket.on('close', leave);
}
server.on('error', (error) => fail(error.message));
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tern-pico-'));
process.on('exit', () => fs.rmSync(folder, { recursive: true, force: true }));
server.listen(path.join(folder, 'port'));
process.on('SIGTERM', () => process.exit(0));
if (options.attached) {
  process.stdin.on('end', () => process.exit(0)).resume();
  // Another child of the one that started it may hold the other end of stdin.
  const parent = process.ppid;
  setInterval(() => process.ppid === parent || process.exit(0), 1000).unref();
}
turn();
