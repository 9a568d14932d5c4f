// Package chat turns a conversation into the text that a model was trained on,
// by the Jinja template that comes with the model.
//
// The text holds the special tokens, so that it is encoded without adding them
// again.
//
// Templates are run by github.com/nikolalohinski/gonja/v2, the one Go
// implementation of Jinja that parses those of the common models. Where it
// differs from Python's Jinja in what templates use, this package puts its own
// in place: white space around tags, negative indices and methods of bracketed
// expressions (all three by rewriting the source), the methods of strings and
// dicts, the tojson, items and trim filters, and some tests.
//
// # What is left of the difference
//
// gonja does not tell an undefined value from none: a name that is not there is
// "none", too, none is "not defined", and printing either gives nothing. Adding
// one to a string is no error. The literal {} is true. Two string literals side
// by side are not one string, but an error at parsing.
//
// # Templates are untrusted
//
// A template comes with a model's files, which may come from anywhere. It cannot
// read files (include, import and extends do not exist here), see anything but
// the conversation and the options, or call anything that acts. Its source, the
// output, the passes of all loops, the depth of macros and the size of each
// variable are limited, so that a template cannot run for ever or fill the
// memory by loops; a panic inside it is an error. What is not limited is the
// memory of a single expression, since gonja offers no place to check: a
// template can still repeat a string a billion times. A process that must
// survive hostile models needs a memory limit of its own.
package chat
