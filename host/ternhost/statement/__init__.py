"""The privacy statement of a run, a plan, a store or a board, for people who are no engineers.

`gather` collects facts, `sentences` says what follows from them, `evidence` names the theorem and
the tests behind each sentence, and `page` writes all of it down.
"""
