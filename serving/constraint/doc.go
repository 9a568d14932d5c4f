// Package constraint holds answers to a grammar: structured outputs, guided decoding, tool
// calls. A [Grammar] is a language over bytes. A [Vocabulary] is made once of a model's tokens. A [Matcher]
// follows one answer: before each token Mask forbids what may not follow, afterwards
// Accept takes the token that was drawn.
//
// A grammar is rules with automata over bytes that call each other, run as a pushdown automaton on a
// set of stacks. Sets are kept in one form, in which equal stacks are one and what many have below
// them is held once (a graph-structured stack), so that ambiguity costs little. A token
// may be any bytes, half a character as well. Masks are found by walking a trie of all tokens; the part
// that does not depend on what is below the rule being read is kept for all answers of the vocabulary
// (XGrammar, arXiv:2411.15100). [Ahead] computes them beside the model's step.
//
// # Bounds
//
// Grammars are bounded in size ([GBNF], [Regex] and [Schema] return errors), and left recursion is
// refused by the rule's name. Repetitions are counted, not written out. While matching, stacks of up to 1024
// frames are followed, deeper nesting may not follow. A mask takes up to some 4 million units of work, about 40 ms; where
// a grammar is so ambiguous that it would take more, the answer ends with [ErrTooAmbiguous]. So what a mask
// allows is always in the grammar.
//
// # JSON Schema
//
// [Schema] enforces this part of draft 2020-12. Its texts are valid against the schema; not every valid
// text is among them:
//
//	type                         one or a list; without it, the types that the other keywords are about
//	enum, const                  any values; objects and lists not beside other keywords about them
//	properties, required         members are written in the order of the schema, then others
//	additionalProperties         false, true, a schema; names that are not declared are written without needless escapes
//	propertyNames                where no names are declared
//	patternProperties            one, with additionalProperties: false, where no names are declared
//	minProperties                up to 1, or where it follows from required
//	maxProperties                where no names are declared, or where it follows from properties
//	items, prefixItems           items as a schema or a boolean
//	minItems, maxItems           counted
//	minLength, maxLength         counted in characters
//	pattern                      RE2's syntax, found anywhere unless ^ and $ say otherwise; assertions elsewhere than at
//	                             its ends are refused; lengths beside it where they follow from it or for one repeated character (^[a-z]*$)
//	format                       date, time, date-time, duration, uuid, ipv4, ipv6, hostname, email, uri (with a host); others are
//	                             annotations, and errors if strict
//	minimum, maximum,            exact, for bounds of up to 20 digits before and after the point; such numbers are
//	exclusiveMinimum, …Maximum   written without an exponent
//	multipleOf                   0.1, 0.01, …; of integers up to 100 without bounds, up to 4096 of them between two bounds
//	anyOf                        also beside other keywords
//	oneOf                        of schemas that no value fits two of, told by type, const, enum, or a required member that has one
//	allOf, $ref                  all keywords hold together; references into the same schema, recursive ones too
//	uniqueItems                  false alone
//	nullable                     of OpenAPI 3.0, beside type
//
// title, description, default, examples, deprecated, readOnly, writeOnly, $schema, $comment, $defs, definitions,
// discriminator, and $id at the root are passed over. Every other keyword is an error, among them not, if, then, else,
// contains, uniqueItems: true, dependentRequired, dependentSchemas, unevaluatedProperties, unevaluatedItems, $anchor, $dynamicRef, and items as a list.
//
// Texts are written as programs and models write them: one blank or nothing after a colon or a comma, or a new line
// and up to 20 blanks around the members of an object or a list. Constants and names have no needless escapes; strings
// without a pattern may have any. Numbers stay within what encoding/json reads into a float64: up to 21 digits before the
// point and 25 after it, or up to 9 digits and an exponent up to 299.
package constraint
