// Attributes the time of the emulated Pico to the functions that spend it, those in C and those in Python.
//
// It follows each call and return of the processor from outside, so that the time on the device is the same without it.
// A call path is a node of a tree, below the node of its caller. A C function is known by its address, from the linker's
// symbols. A Python function is known from the interpreter: its functions fun_..._call get the function object in r0, and
// mp_execute_bytecode gets a state whose first word is it.
//
// A segment lasts from one call of time.ticks_us() to the next, exactly between the two moments that the program reads.
// Each segment is a line of JSON: the nodes and Python functions that are new, the function that ended it, and for each
// node the nanoseconds that it spent itself, how often it was called, and the bytes of the heap that it allocated, less
// those that were freed.
import fs from 'node:fs';
import { CYCLE_NANOS } from './core.mjs';

const FLASH = 0x10000000;
const RAM = 0x20000000;
const FLASH_BYTES = 2 << 20;
const RAM_BYTES = 264 << 10;
const ROM_BYTES = 16 << 10;
const HEAP_BLOCK = 16; // bytes
const TIMER = 0x40054;
const TIMERAWL = 0x28;

// Kinds of nodes. From FIRST on these are the functions of the linker's symbols, and from PYTHON on Python functions.
const INTERRUPT = -2;
const WAITING = -1;
const UNKNOWN = 0; // code without a symbol
const NATIVE = 1; // machine code that MicroPython has loaded: of viper and assembler functions
const FIRST = 2;
const PYTHON = 1 << 20;

// What is in r0 when a C function is called that runs a function of Python.
const FUNCTION = 1; // an object with the words type, context (the module), table of inner functions, code
const ASSEMBLER = 2; // one of an assembler function, with the words type, number of arguments, code
const STATE = 3; // the state of a function that runs, whose first word is the object
const HOOKS = {
  fun_bc_call: FUNCTION,
  fun_native_call: FUNCTION,
  fun_viper_call: FUNCTION,
  fun_asm_call: ASSEMBLER,
  mp_execute_bytecode: STATE,
};

// The part of the profile that outlives a reset of the chip: the tree, and the file that it goes to.
export class ProfileFile {
  constructor(file, symbols) {
    this.file = fs.openSync(file, 'w');
    const read = symbols.map((path) => JSON.parse(fs.readFileSync(path, 'utf8')));
    this.functions = read.flatMap((one) => one.functions);
    this.names = read.find((one) => one.names).names;
    this.children = [new Map()]; // of each node: its children by kind
    this.nanos = [0]; // that each node spent itself in this segment
    this.calls = [0];
    this.bytes = [0];
    this.touched = [];
    this.newNodes = [];
    this.pythons = new Map(); // Python functions, by the address of their code
    this.pythonCount = 0;
    this.newPythons = [];
    this.allocations = new Map(); // node and bytes of what is in the heap, by address
  }

  // The node below `parent` of a function, or another kind.
  child(parent, kind) {
    let node = this.children[parent].get(kind);
    if (node === undefined) {
      node = this.children.length;
      this.children[parent].set(kind, node);
      this.children.push(new Map());
      this.nanos.push(0);
      this.calls.push(0);
      this.bytes.push(0);
      this.newNodes.push([node, parent, kind]);
    }
    return node;
  }

  touch(node) {
    if (!this.nanos[node] && !this.calls[node] && !this.bytes[node]) this.touched.push(node);
  }

  called(node) {
    this.touch(node);
    this.calls[node] += 1;
    return node;
  }

  spend(node, nanos) {
    this.touch(node);
    this.nanos[node] += nanos;
  }

  // A node has allocated so many bytes at this address of the heap.
  allocate(node, bytes, address) {
    this.touch(node);
    this.bytes[node] += bytes;
    this.allocations.set(address, [node, bytes]);
  }

  // What was allocated at this address is free again. A garbage collection does not tell what it frees.
  free(address) {
    const [node, bytes] = this.allocations.get(address) ?? [0, 0];
    this.touch(node);
    this.bytes[node] -= bytes;
    this.allocations.delete(address);
  }

  // The number of the Python function with this code. The same address can have other code later, which its mark tells.
  // `describe` says what else is known of a new function.
  python(code, mark, describe) {
    const known = this.pythons.get(code);
    if (known?.mark === mark) return known.number;
    const number = PYTHON + this.pythonCount++;
    this.pythons.set(code, { number, mark });
    this.newPythons.push([number, ...describe()]);
    return number;
  }

  endSegment(python) {
    const segment = {
      by: python,
      nodes: this.newNodes,
      pythons: this.newPythons,
      spent: this.touched.map((node) => [node, this.nanos[node], this.calls[node], this.bytes[node]]),
    };
    fs.writeSync(this.file, `${JSON.stringify(segment)}\n`);
    for (const node of this.touched) {
      this.nanos[node] = 0;
      this.calls[node] = 0;
      this.bytes[node] = 0;
    }
    this.touched = [];
    this.newNodes = [];
    this.newPythons = [];
  }
}

// Whether an object of MicroPython is a name, which is a number and not the address of a text.
function isText(object) {
  return (object & 7) === 2;
}

// Follows the calls of one chip, from its reset on.
export class Profiler {
  constructor(mcu, file) {
    this.mcu = mcu;
    this.core = mcu.core;
    this.file = file;
    this.number(file.functions);
    this.frames = [{ kind: 0, back: 0, sp: RAM + RAM_BYTES, node: 0, python: 0 }];
    this.top = this.frames[0];
    this.interrupted = []; // depths of the stack at interrupts
    this.entered = 0; // the first instruction of an interrupt, which is executed in the step that enters it
    this.listen();
  }

  // Number the functions, and find for each address of code its function.
  number(functions) {
    this.inRom = new Uint16Array(ROM_BYTES >> 1);
    this.inFlash = new Uint16Array(FLASH_BYTES >> 1);
    this.inRam = new Uint16Array(RAM_BYTES >> 1).fill(NATIVE);
    this.starts = [];
    this.hooks = [];
    functions.forEach(([address, size, name], index) => {
      const kind = FIRST + index;
      this.starts[kind] = address;
      this.hooks[kind] = HOOKS[name] ?? 0;
      if (name === 'fun_bc_call') this.bytecodeCall = kind;
      if (name === 'time_ticks_us') this.ticks = kind;
      if (name === 'gc_alloc') this.allocation = kind;
      if (name === 'gc_free') this.release = kind;
      let [code, base] = [this.inRom, 0];
      if (address >= FLASH) [code, base] = [this.inFlash, FLASH];
      if (address >= RAM) [code, base] = [this.inRam, RAM];
      code.fill(kind, (address - base) >> 1, (address - base + size + 1) >> 1);
    });
  }

  kindAt(address) {
    const inFlash = (address - FLASH) >>> 0;
    if (inFlash < FLASH_BYTES) return this.inFlash[inFlash >>> 1];
    const inRam = (address - RAM) >>> 0;
    if (inRam < RAM_BYTES) return this.inRam[inRam >>> 1];
    return this.inRom[address >>> 1] ?? UNKNOWN;
  }

  listen() {
    const { core } = this;
    const enter = core.exceptionEntry.bind(core);
    const leave = core.exceptionReturn.bind(core);
    core.exceptionEntry = (number) => {
      const sp = core.registers[13];
      enter(number);
      this.interrupted.push(this.frames.length);
      const root = this.file.called(this.file.child(0, INTERRUPT));
      this.entered = core.registers[15] & ~1;
      this.top = { kind: 0, back: 0, sp, node: root, python: 0 };
      this.frames.push(this.top);
      this.push(this.kindAt(this.entered), this.entered, 0, sp);
    };
    core.exceptionReturn = (code) => {
      leave(code);
      this.cut(this.interrupted.pop() ?? 1);
    };
    const timer = this.mcu.peripherals[TIMER];
    const read = timer.readUint32.bind(timer);
    timer.readUint32 = (offset) => {
      if (offset === TIMERAWL && this.isTicks()) this.file.endSegment(this.top.python);
      return read(offset);
    };
  }

  isTicks() {
    const { frames } = this;
    return this.top.kind === this.ticks || frames[frames.length - 2]?.kind === this.ticks;
  }

  cut(depth) {
    this.frames.length = Math.max(depth, 1);
    this.top = this.frames[this.frames.length - 1];
  }

  pop() {
    if (this.frames.length > 1) this.cut(this.frames.length - 1);
  }

  // Begin a frame of the function `kind`, which the processor enters at the address `to`.
  push(kind, to, back, sp) {
    this.frames.push(this.frameBelow(this.top, kind, to, back, sp));
    this.top = this.frames[this.frames.length - 1];
  }

  // The frame of a function that one with the frame `caller` calls.
  frameBelow(caller, kind, to, back, sp) {
    let { node } = caller;
    const python = to === this.starts[kind] ? this.pythonFunction(kind, caller) : 0;
    if (python) node = this.file.called(this.file.child(node, python));
    node = this.file.called(this.file.child(node, kind));
    if (kind === this.release) this.file.free(this.core.registers[0]);
    // What is in r0 now is what gc_alloc needs when it returns.
    return { kind, back, sp, node, python: python || caller.python, argument: this.core.registers[0] };
  }

  // The number of the Python function that a call of a C function begins; 0 if it begins none.
  pythonFunction(kind, caller) {
    const hook = this.hooks[kind];
    if (!hook) return 0;
    let object = this.core.registers[0];
    if (hook === ASSEMBLER) return this.python(this.word(object + 8), 0, () => [object, 0, '']);
    if (hook === STATE) {
      if (caller.kind === this.bytecodeCall) return 0; // it has begun there
      object = this.word(object);
    }
    const context = this.word(object + 4);
    const code = this.word(object + 12);
    const isBytecode = hook === STATE || kind === this.bytecodeCall;
    return this.python(code, context, () => [object, context, isBytecode ? this.nameOf(context, code) : '']);
  }

  python(code, context, describe) {
    const mark = `${context} ${this.word(code & ~3)} ${this.word((code & ~3) + 4)}`;
    return this.file.python(code, mark, describe);
  }

  // The name of a function of bytecode with that of its module. MicroPython's py/bc.h describes the code, whose beginning
  // holds the number of the name in the module's table of names.
  nameOf(context, code) {
    let at = code;
    const number = () => {
      let value = 0;
      let part;
      do {
        part = this.byte(at++);
        value = (value << 7) | (part & 0x7f);
      } while (part & 0x80);
      return value;
    };
    number(); // the signature
    number(); // the sizes
    const index = number();
    const table = this.word(context + 8);
    const name = this.text(this.byte(table + 2 * index) | (this.byte(table + 2 * index + 1) << 8));
    return `${this.moduleName(this.word(context + 4))}.${name}`;
  }

  // The value of __name__ among the global names of a module, a dict that begins with its type and a map.
  moduleName(globals) {
    const entries = this.word(globals + 8);
    const table = this.word(globals + 12);
    for (let i = 0; i < entries; i++) {
      const key = this.word(table + 8 * i);
      const value = this.word(table + 8 * i + 4);
      if (isText(key) && isText(value) && this.text(key >>> 3) === '__name__') return this.text(value >>> 3);
    }
    return '';
  }

  // The text of a name by its number. MicroPython's py/qstr.h describes the pools of names.
  text(number) {
    const { last_pool: lastPool, qstrs } = this.file.names;
    let pool = this.word(lastPool);
    while (pool && number < (this.word(pool + 4) & 0x7fffffff)) pool = this.word(pool);
    let at = this.word(pool + qstrs + 4 * (number - (this.word(pool + 4) & 0x7fffffff)));
    let text = '';
    for (let byte = this.byte(at++); byte; byte = this.byte(at++)) text += String.fromCharCode(byte);
    return text;
  }

  byte(address) {
    return (this.word(address & ~3) >>> (8 * (address & 3))) & 0xff;
  }

  // A word of RAM or flash; 0 elsewhere, since to read a register can change it.
  word(address) {
    const inRam = (address - RAM) >>> 0;
    if (inRam < RAM_BYTES || (address - FLASH) >>> 0 < FLASH_BYTES) return this.mcu.readUint32(address);
    return 0;
  }

  // Execute an instruction, and attribute its cycles, which are returned.
  step(execute) {
    const r = this.core.registers;
    const pc = r[15] & ~1;
    const { frames } = this;
    const cycles = execute();
    let from = pc;
    if (this.entered) {
      from = this.entered;
      this.entered = 0;
    }
    this.file.spend(this.top.node, cycles * CYCLE_NANOS);
    const to = r[15] & ~1;
    if (to !== from + 2 && to !== from + 4) this.follow(from, to);
    return cycles;
  }

  follow(from, to) {
    const r = this.core.registers;
    const sp = r[13];
    const opcode = this.mcu.readUint16(from);
    const kind = this.kindAt(to);
    const links = (opcode & 0xf800) === 0xf000 || (opcode & 0xff80) === 0x4780; // BL and BLX
    // GCC also takes BL for a jump within a large function.
    if (links && (kind !== this.top.kind || kind <= NATIVE || to === this.starts[kind])) {
      this.push(kind, to, r[14] & ~1, sp);
      return;
    }
    while (sp > this.top.sp && this.frames.length > 1) this.pop(); // a long jump
    if (to === this.top.back && sp === this.top.sp) this.return();
    else if (kind !== this.top.kind) this.jump(kind, to);
  }

  return() {
    const { kind, node, argument } = this.top;
    const address = this.core.registers[0];
    if (kind === this.allocation && address) {
      this.file.allocate(node, Math.ceil(argument / HEAP_BLOCK) * HEAP_BLOCK, address);
    }
    this.pop();
  }

  // A jump into another function: a tail call, or a return to somewhere else than after the call.
  jump(kind, to) {
    if (to !== this.starts[kind]) {
      let depth = this.frames.length - 1;
      while (depth > 0 && this.frames[depth].kind !== kind) depth -= 1;
      if (depth > 0) {
        this.cut(depth + 1);
        return;
      }
    }
    const { back, sp } = this.top;
    this.pop();
    this.push(kind, to, back, sp);
  }

  idle(nanos) {
    this.file.spend(this.file.child(this.top.node, WAITING), nanos);
  }
}
