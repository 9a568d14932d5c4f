package constraint

import "fmt"

// formats are regular expressions of the formats that are enforced (RFC 3339, 4122, 2673, 4291, 1123, 6570, 6901; of
// RFC 5321 the dotted words, of RFC 3986 no addresses of hosts by number or with a user). Of those with characters beyond
// ASCII the ones without are written.
var formats = func() map[string]string {
	const (
		leap   = `([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)`
		date   = `([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|` + leap + `-02-29)`
		time   = `([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])`
		byte   = `(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`
		group  = `[0-9a-fA-F]{1,4}`
		number = `[0-9]{1,4}`
		name   = `[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?`
		atom   = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"
		path   = `([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})`
		// of RFC 6570
		variable = `([A-Za-z0-9_]|%[0-9A-Fa-f]{2})(\.?([A-Za-z0-9_]|%[0-9A-Fa-f]{2})){0,30}(:[1-9][0-9]{0,3}|\*)?`
		query    = `([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})`
	)
	// units is numbers with three units; the first and the last may be left out, but none between.
	units := func(small, middle, large string) string {
		x := number + small
		y := number + middle + `(` + x + `)?`
		return `(` + x + `|` + y + `|` + number + large + `(` + y + `)?)`
	}
	clock := `T` + units("S", "M", "H")
	ipv6 := `::(` + group + `(:` + group + `){0,6})?|` + group + `(:` + group + `){6}(::|:` + group + `)`
	for left := range 6 {
		ipv6 += fmt.Sprintf(`|%[1]s(:%[1]s){%[2]d}::(%[1]s(:%[1]s){0,%[3]d})?`, group, left, 5-left)
	}
	const (
		pathSegment = `/` + path + `{0,50}`
		tail        = `(\?` + query + `{0,80})?(#` + query + `{0,40})?`
		// without a colon, which would end a scheme
		first   = `([A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})`
		host    = name + `(\.` + name + `){0,3}(:[1-9][0-9]{0,3})?`
		pointer = `(/([^/~]|~[01])*)*`
		// Up to 2000 characters, within what pydantic asks for beside it.
		uri      = `[A-Za-z][A-Za-z0-9+.-]{0,20}:(//` + host + `(` + pathSegment + `){0,8}|(//)?/` + path + `{1,50}(` + pathSegment + `){0,7}|` + path + `{1,50}(` + pathSegment + `){0,7})` + tail
		relative = `(//` + host + `(` + pathSegment + `){0,8}|/(` + path + `{1,50}(` + pathSegment + `){0,7})?|(` + first + `{1,50}(` + pathSegment + `){0,7})?)` + tail
		hostname = name + `(\.` + name + `){0,3}`
		email    = atom + `(\.` + atom + `){0,2}@` + name + `(\.` + name + `){0,2}`
	)
	// A regular expression that every engine reads, with groups in groups three deep.
	const (
		escaped = `\\[dDwWsStnr.^$*+?()\[\]{}|/\\-]`
		plain   = `[^\\^$.|?*+()\[\]{}\x00-\x1f]`
		times   = `([*+?]|\{[1-5]\})?`
	)
	atom1 := `(` + plain + `|` + escaped + `|\.|\[\^?([^\\\]\[^&~|\x00-\x1f-]|a-z|A-Z|0-9|` + escaped + `)+\])`
	regex := `\^?(` + atom1 + times + `)*\$?`
	for range 3 {
		regex = `\^?(` + atom1 + times + `|\((\?:)?` + regex + `(\|` + regex + `)*\)` + times + `)*\$?`
	}
	return map[string]string{
		"date":                  date,
		"time":                  time,
		"date-time":             date + "T" + time,
		"duration":              `P(` + number + `W|` + clock + `|` + units("D", "M", "Y") + `(` + clock + `)?)`,
		"uuid":                  `[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`,
		"ipv4":                  byte + `(\.` + byte + `){3}`,
		"ipv6":                  ipv6,
		"hostname":              hostname,
		"idn-hostname":          hostname,
		"email":                 email,
		"idn-email":             email,
		"uri":                   uri,
		"iri":                   uri,
		"uri-reference":         `(` + uri + `|` + relative + `)`,
		"iri-reference":         `(` + uri + `|` + relative + `)`,
		"regex":                 regex + `(\|` + regex + `)*`,
		"json-pointer":          pointer,
		"relative-json-pointer": `(0|[1-9][0-9]{0,5})(#|` + pointer + `)`,
		"uri-template":          `(` + query + `|\{[+#./;?&=,!@|]?` + variable + `(,` + variable + `){0,5}\})*`,
	}
}()
