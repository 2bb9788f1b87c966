// Runs a Python program on MicroPython's port for WebAssembly.
//
//   node runner.mjs FOLDER HEAP PROGRAM
//
// The files of FOLDER are copied into the interpreter's own file system, in memory. The program begins in /device, and
// finds modules there and in /library and /tests. HEAP: bytes with which the heap begins. What the program prints goes
// to stdout, and the exit code is 1 if it ends with an exception.
import fs from 'node:fs';
import path from 'node:path';
import { randomBytes } from 'node:crypto';
import { loadMicroPython } from '@micropython/micropython-webassembly-pyscript';

// The port has no os.urandom.
const PRELUDE = `
def prepare():
    import binascii, os, sys, tern_node
    os.urandom = lambda n: binascii.unhexlify(tern_node.random_hex(n))
    os.chdir("/device")
    sys.path[:] = ["/library", "/device", "/tests", ".frozen"]
prepare()
`;

function copyFiles(from, to, files) {
  for (const entry of fs.readdirSync(from, { withFileTypes: true })) {
    const source = path.join(from, entry.name);
    const target = path.posix.join(to, entry.name);
    if (fs.statSync(source).isDirectory()) {
      files.mkdir(target);
      copyFiles(source, target, files);
    } else {
      files.writeFile(target, fs.readFileSync(source));
    }
  }
}

const [folder, heap, program] = process.argv.slice(2);
const print = (bytes) => fs.writeSync(process.stdout.fd, bytes);
const interpreter = await loadMicroPython({ heapsize: Number(heap), linebuffer: false, stdout: print, stderr: print });
interpreter.registerJsModule('tern_node', { random_hex: (n) => randomBytes(n).toString('hex') });
copyFiles(folder, '/', interpreter.FS);
try {
  interpreter.runPython(PRELUDE + program);
} catch (error) {
  console.log(error.message);
  process.exitCode = 1;
}
