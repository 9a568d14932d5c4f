// Package onig runs the regular expressions of tokenizer.json files as the
// reference library does, which gives them to Oniguruma in its Ruby syntax.
//
// Go's regexp has neither look-around nor possessive quantifiers. A port of
// .NET's engine has look-around, but no possessive quantifiers and other
// readings of a number of forms that these files use:
//
//   - \p{N}{1,3}+ repeats \p{N}{1,3}, it is not possessive;
//   - a(?i)b|c is a(?i:b|c);
//   - ^ and $ match at every line, . takes no newline unless (?m) is set;
//   - [a-z&&[^b]] is an intersection;
//   - \s, \d, \w and \h are Unicode's (\h a hexadecimal digit).
//
// Not supported, and refused by name: back references, \G, \K, \X, \y, calls,
// conditions, the absence operator, and characters that a case-insensitive match
// would fold to several (ß, and ss beside it).
//
// # Cost
//
// A match is found by backtracking. A state (place in the pattern, place in the
// text) that has failed once fails always, so once a match has taken many steps
// the failed states are kept and not tried again: the time is then linear in the
// text for nearly every pattern, (a+)+b included. What remains, such as a
// look-ahead that reads to the end of the text from everywhere, is stopped with
// [ErrSteps].
package onig
