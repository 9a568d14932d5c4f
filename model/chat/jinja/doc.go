// Package jinja runs the templates that chat models come with, byte for byte as
// Python's Jinja does when transformers sets it up: an immutable sandbox with
// trim_blocks and lstrip_blocks, break and continue, the generation block, a tojson
// that leaves what is not ASCII as it is, raise_exception and strftime_now.
//
// A template goes through three steps: [lex] cuts the text into tokens and removes
// the white space around tags, the parser builds a tree of statements and
// expressions, and a [run] walks the tree. Values are Python's: whole numbers, strings
// that are indexed by character, lists and tuples, dicts in the order of their keys,
// generators that give their elements once, text that is marked as safe, and undefined,
// which prints to nothing and fails where it is used.
//
// No kept Go library does this: those there are follow Django or MiniJinja, have no
// undefined, bind operators otherwise, or cannot be limited.
//
// # What is not supported
//
// Only what templates of chat models use, or may, is there. The rest of Jinja and of
// Python is an error that names it, where it is used, and never other text: include,
// import, extends and block, recursive loops, filters such as groupby, center and
// wordwrap, methods such as zfill and encode, "**", whole numbers beyond 64 bits but to
// print, remainders of floats, specifications in formats, and most things that Jinja does
// with text that is marked as safe.
//
// # Templates are untrusted
//
// A template comes with a model's files, which may come from anywhere. Every
// operation of a rendering, of whatever kind, is charged to one budget by the bytes it
// reads and writes, before it is done: 32 MiB and 512 bytes for each byte of the
// conversation, at most 4 GiB. That bounds memory and time alike. Macros, loops and lists
// in each other, and the nesting of the source, are limited in depth, which bounds the
// stack. A rendering ends soon after its context. Errors quote what a terminal would act
// on.
package jinja
