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
// [Schema] enforces this part of drafts 4, 6, 7, 2019-09 and 2020-12, which $schema names; without it 2020-12. Its texts are
// valid against the schema; not every valid text is among them:
//
//	type                         one or a list; without it, the types that the other keywords are about
//	enum, const                  any values, also beside other keywords
//	properties, required         members are written in the order of the schema, then others
//	additionalProperties,        names that are not declared are written without needless escapes; up to 64 sets of patterns
//	patternProperties,           that the same names match
//	propertyNames
//	minProperties, maxProperties up to 64 beside properties; of members that are not declared one counts for minProperties,
//	                             since names may repeat
//	dependentRequired,           an alternative each
//	dependentSchemas, dependencies
//	items, prefixItems,          items as a list, too, and additionalItems after it
//	minItems, maxItems           counted
//	contains, minContains        without prefixItems; minContains above 1 without numbers of items
//	uniqueItems                  of up to 8 constants, or up to one item
//	minLength, maxLength         counted in characters
//	pattern                      ECMA-262's syntax with look-ahead, found anywhere unless ^ and $ say otherwise; look-behind,
//	                             back-references and \b are refused, and assertions in what repeats without an end
//	format                       date, time, date-time, duration, uuid, ipv4, ipv6, hostname, email, uri, uri-reference, their forms
//	                             with other characters (idn-, iri), uri-template, json-pointer, relative-json-pointer, regex; others are
//	                             annotations, and errors if strict
//	                             Patterns, formats and lengths hold together, as an automaton of up to 8192 states.
//	minimum, maximum,            exact, for bounds of up to 20 digits before and after the point; such numbers are
//	exclusiveMinimum, …Maximum   written without an exponent
//	multipleOf                   0.1, 0.01, …; of integers up to 100 without bounds, up to 4096 of them between two bounds
//	allOf, anyOf                 all keywords hold together
//	oneOf                        of schemas that may both be valid each says that the others are not
//	not, if, then, else          exact: what an expression of this package only approaches may not be under not, that is
//	                             formats but date, uuid and ipv4, multipleOf, propertyNames, uniqueItems, and constants that are objects or lists
//	$ref, $id, $anchor           into the same schema, recursive ones too; drafts 4 to 7 pass over what is beside $ref
//	nullable                     of OpenAPI 3.0, beside type
//
// Errors are unevaluatedProperties, unevaluatedItems, maxContains, $dynamicRef, $recursiveRef, extends, disallow and divisibleBy. Every
// other keyword is an annotation (2020-12, core, section 6.5). Alternatives multiply: a schema comes to at most 8192
// shapes and 262,144 nodes, and is refused beyond. On MaskBench's 11,305 schemas, lab/peers/maskbench counts what is taken.
//
// Texts are written as programs and models write them: one blank or nothing after a colon or a comma, or a new line
// and up to 20 blanks around the members of an object or a list. Constants and names have no needless escapes; strings
// without a pattern may have any. Numbers stay within what encoding/json reads into a float64: up to 21 digits before the
// point and 25 after it, or up to 9 digits and an exponent up to 299.
package constraint
