package constraint

import (
	"fmt"
	"strings"
)

// Rules of JSON texts that all schemas share, so that their masks are made once for a model.
// White space is what models write: a blank after a colon or a comma, or a new line and up
// to 20 blanks before the next item or the closing bracket.
var (
	jsonSpace  = jsonRule("white space", opt(seq(lit("\n"), rep(lit(" "), 0, 20))))
	jsonAfter  = jsonRule("white space after a comma", alt(lit(" "), ref(jsonSpace))) // or nothing
	jsonColon  = seq(lit(":"), opt(lit(" ")))
	jsonComma  = seq(lit(","), ref(jsonAfter))
	jsonString = jsonRule("string", quoted(rep(jsonChar, 0, unbounded)))
	jsonPlain  = jsonRule("characters", rep(asWritten(anyRune...), 0, unbounded))
	// Characters that take more than a byte, as asWritten has them.
	jsonLong   = jsonRule("long characters", asWritten(without(anyRune, []runeRange{{0x20, '!'}, {'#', '['}, {']', 0x7F}})...))
	jsonNumber = jsonRule("number", numberText())
	// Numbers that are no integers.
	jsonFraction = jsonRule("fraction", signed(seq(natural, lit("."), rep(lit("0"), 0, fractionDigits-1), nonzero, rep(digit, 0, fractionDigits-1))))
	// Integers without a limit of their own have up to 21 digits.
	jsonInteger = jsonRule("integer", alt(lit("0"), seq(opt(lit("-")), nonzero, rep(digit, 0, integerDigits-1))))
	jsonValue   = jsonValueRule()
	jsonObject  = jsonRule("object", objectOf(seq(ref(jsonString), jsonColon, ref(jsonValue)), 0, unbounded))
)

func jsonRule(name string, x *expr) *rule { return made(&rule{name: name, body: x, keep: true}) }

func jsonValueRule() *rule {
	r := &rule{name: "JSON value", keep: true}
	member := seq(ref(jsonString), jsonColon, ref(r))
	r.body = alt(objectOf(member, 0, unbounded), arrayOf(ref(r), 0, unbounded), ref(jsonString), ref(jsonNumber),
		lit("true"), lit("false"), lit("null"))
	return made(r)
}

// Object admits every JSON object, as response_format json_object asks for.
func Object() *Grammar { return &Grammar{jsonObject} }

func quoted(x *expr) *expr { return seq(lit(`"`), x, lit(`"`)) }

func objectOf(member *expr, lo, hi int) *expr { return listOf("{", "}", member, lo, hi) }
func arrayOf(item *expr, lo, hi int) *expr    { return listOf("[", "]", item, lo, hi) }

// listOf matches lo to hi items between brackets.
func listOf(open, shut string, item *expr, lo, hi int) *expr {
	some := never
	if hi != 0 {
		others := unbounded
		if hi != unbounded {
			others = hi - 1
		}
		some = seq(item, rep(seq(jsonComma, item), max(lo-1, 0), others))
	}
	return bracketed(open, shut, some, lo == 0)
}

// bracketed matches items between brackets, or none of them.
func bracketed(open, shut string, items *expr, orNone bool) *expr {
	none := never
	if orNone {
		none = empty
	}
	return seq(lit(open), alt(none, seq(ref(jsonSpace), items, ref(jsonSpace))), lit(shut))
}

// jsonChar is one character of a string, written as it is or escaped in any way. Halves of
// surrogate pairs do not stand alone.
var jsonChar = alt(
	runes(without(anyRune, []runeRange{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}})...),
	seq(lit(`\`), alt(
		byteIn("\"\"\\\\//bbffnnrrtt"),
		seq(lit("u"), alt(
			seq(byteIn("09acefACEF"), hexDigit, hexDigit, hexDigit),
			seq(byteIn("ddDD"), alt(
				seq(byteIn("07"), hexDigit, hexDigit),
				seq(byteIn("89abAB"), hexDigit, hexDigit, lit(`\u`), byteIn("ddDD"), byteIn("cfCF"), hexDigit, hexDigit),
			)),
		)),
	)),
)

var hexDigit = byteIn("09afAF")

// asWritten matches one of the characters as encoding/json writes them without escapes for
// HTML: escaped only where it has to be.
func asWritten(ranges ...runeRange) *expr {
	plain := without(ranges, []runeRange{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}})
	var escaped []string
	for _, r := range normal(ranges) {
		for c := r.lo; c <= min(r.hi, '\\'); c++ {
			if c < 0x20 || c == '"' || c == '\\' {
				escaped = append(escaped, jsonEscape(c))
			}
		}
	}
	return alt(runes(plain...), words(escaped))
}

// jsonEscape is a character as asWritten has it.
func jsonEscape(c rune) string {
	switch i := strings.IndexRune("\"\\\b\f\n\r\t", c); {
	case i >= 0:
		return `\` + `"\bfnrt`[i:i+1]
	case c < 0x20:
		return fmt.Sprintf(`\u%04x`, c)
	}
	return string(c)
}

// jsonText is a string constant as asWritten has it.
func jsonText(s string) string { return `"` + escapeText(s) + `"` }

// escapeText is what jsonText has between the quotes.
func escapeText(s string) string {
	var out strings.Builder
	for _, c := range s {
		out.WriteString(jsonEscape(c))
	}
	return out.String()
}
