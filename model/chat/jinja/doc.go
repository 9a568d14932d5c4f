// Package jinja runs the templates that chat models come with, byte for byte as
// Python's Jinja does when transformers sets it up: an immutable sandbox with
// trim_blocks and lstrip_blocks, break and continue, the generation block, a tojson
// that leaves what is not ASCII as it is, raise_exception and strftime_now.
//
// A template goes through three steps: [lex] cuts the text into tokens and removes
// the white space around tags, the parser builds a tree of statements and
// expressions, and a [run] walks the tree. Values are Python's: whole numbers of any
// size, strings that are indexed by character, lists and tuples, dicts in the order
// of their keys, ranges, generators that give their elements once, text that is
// marked as safe, and undefined, which prints to nothing and fails where it is used.
//
// No kept Go library does this: those there are follow Django or MiniJinja, have no
// undefined, bind operators otherwise, or cannot be limited.
//
// # What is left of the difference
//
// Templates see nothing but their variables: include, import, extends and block do
// not exist, nor do the filters pprint, random, striptags, urlize, wordwrap and
// xmlattr, the function lipsum, the methods encode, translate and maketrans,
// characters by name (\N), complex numbers, and "%" on text that is marked as safe.
// What Python prints with an address, as methods and generators, has none here.
//
// # Templates are untrusted
//
// A template comes with a model's files, which may come from anywhere. Every
// operation of a rendering, of whatever kind, is charged to one budget by the bytes it
// reads and writes, before it is done: 32 MiB and 512 bytes for each byte of the
// conversation, at most 4 GiB. That bounds memory and time alike. Macros, loops, lists
// and iterators in each other, and the nesting of the source, are limited in depth,
// which bounds the stack. A rendering ends soon after its context. Errors quote what
// a terminal would act on.
package jinja
