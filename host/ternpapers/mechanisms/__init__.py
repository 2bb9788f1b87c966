"""The mechanisms of the papers that tern compares its own with.

They are as exact as the core's: integers, certified, and runnable on devices.
"""

# Their names, as the entry points of `tern.mechanisms` register them.
NAMES = ("harmony", "pm", "pm-opt", "hm", "hm-tp", "pdpm", "lhp")
