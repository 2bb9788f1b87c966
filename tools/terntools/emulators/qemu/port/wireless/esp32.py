"""A stand-in for the ESP32's module `esp32`: the thermometer that the chip of this instruction set
has.
"""

import sys

if "xtensa" in sys.implementation._machine:

    def raw_temperature():
        """Degrees Fahrenheit, of an ESP32."""
        return 77

else:

    def mcu_temperature():
        """Degrees Celsius, of an ESP32-C3."""
        return 25
