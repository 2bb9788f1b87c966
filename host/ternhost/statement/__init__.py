"""The privacy statement of a run, a plan, a store or a board: one page that somebody who is no
engineer can file.

`gather` collects facts, `sentences` says what follows from them, `evidence` names the theorem and
the tests behind each sentence, and `page` writes all of it down.
"""
