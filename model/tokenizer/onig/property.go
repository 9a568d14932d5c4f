package onig

import (
	"maps"
	"strings"
	"sync"
	"unicode"
)

var hexDigits = runeSet{{'0', '9'}, {'A', 'F'}, {'a', 'f'}}

// Category returns a function that tells whether a character is of a general
// category, such as "L" or "Nd", of the Unicode version that patterns follow. It
// panics on other names.
func Category(name string) func(rune) bool {
	s := category(name)
	if s == nil {
		panic("onig: no general category " + name)
	}
	return s.has
}

// IsWord is \w as regular expressions other than Oniguruma's have it (Unicode
// Technical Standard 18, Annex C), of the Unicode version that patterns follow.
func IsWord(r rune) bool { return wordSet().has(r) || unicode.Is(unicode.Join_Control, r) }

var categories = struct {
	sync.Mutex
	sets map[string]runeSet
}{sets: make(map[string]runeSet)}

// category returns a general category by its short name, nil for none.
func category(name string) runeSet {
	categories.Lock()
	defer categories.Unlock()
	if s, ok := categories.sets[name]; ok {
		return s
	}
	s := makeCategory(name)
	if s != nil {
		categories.sets[name] = s
	}
	return s
}

func makeCategory(name string) runeSet {
	switch name {
	case "Cn":
		return union(makeCategory("L"), makeCategory("M"), makeCategory("N"), makeCategory("P"), makeCategory("S"), makeCategory("Z"),
			makeCategory("Cc"), makeCategory("Cf"), makeCategory("Co"), fromTable(unicode.Cs)).negated()
	case "C":
		return union(makeCategory("Cn"), makeCategory("Cc"), makeCategory("Cf"), makeCategory("Co"), fromTable(unicode.Cs))
	case "LC":
		return union(makeCategory("Lu"), makeCategory("Ll"), makeCategory("Lt"))
	}
	t, ok := unicode.Categories[name]
	if !ok || len(name) > 2 {
		return nil
	}
	if len(name) == 2 {
		return union(intersect(fromTable(t), moved[name].negated()), newer[name])
	}
	s := fromTable(t)
	for sub, more := range newer {
		if len(sub) == 2 && sub[:1] == name {
			s = union(s, more)
		}
	}
	return s
}

var whiteSpace = sync.OnceValue(func() runeSet { return fromTable(unicode.White_Space) })

var alphabetic = sync.OnceValue(func() runeSet {
	return union(category("L"), category("Nl"), fromTable(unicode.Other_Alphabetic), newer["Other_Alphabetic"])
})

var wordSet = sync.OnceValue(func() runeSet {
	return union(alphabetic(), category("M"), category("Nd"), category("Pc"))
})

// looseWordSet is \w outside a class, where Oniguruma looks characters below 256
// up in a table that has six numbers more.
var looseWordSet = sync.OnceValue(func() runeSet {
	return union(wordSet(), runeSet{{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}})
})

func graph() runeSet { return union(whiteSpace(), category("Cc"), category("Cn")).negated() }

// posix returns the class of a POSIX bracket, such as [:alpha:].
func posix(name string) (runeSet, bool) {
	if name == "punct" {
		return union(category("P"), category("S")), true
	}
	return made(named, name)
}

// made is the set that a name's function makes.
func made(sets map[string]func() runeSet, name string) (set runeSet, ok bool) {
	f, ok := sets[name]
	if ok {
		set = f()
	}
	return set, ok
}

// named are the sets that have the same name as POSIX bracket and property.
var named = map[string]func() runeSet{
	"alnum":  func() runeSet { return union(alphabetic(), category("Nd")) },
	"alpha":  alphabetic,
	"ascii":  func() runeSet { return runeSet{{0, 0x7f}} },
	"blank":  func() runeSet { return union(category("Zs"), single('\t')) },
	"cntrl":  func() runeSet { return category("Cc") },
	"digit":  func() runeSet { return category("Nd") },
	"graph":  graph,
	"lower":  func() runeSet { return union(category("Ll"), fromTable(unicode.Other_Lowercase)) },
	"print":  func() runeSet { return union(graph(), category("Zs")) },
	"space":  whiteSpace,
	"upper":  func() runeSet { return union(category("Lu"), fromTable(unicode.Other_Uppercase)) },
	"word":   wordSet,
	"xdigit": func() runeSet { return hexDigits },
}

// properties are Unicode's properties that Go has a table of and nothing newer is to be
// added to, but for what newer lists.
var properties = []string{"White_Space", "Ideographic", "Unified_Ideograph", "Dash", "Hex_Digit", "ASCII_Hex_Digit", "Variation_Selector", "Join_Control"}

// propertyNames maps names without case, spaces, hyphens and underscores to
// functions that make their sets.
var propertyNames = sync.OnceValue(func() map[string]func() runeSet {
	m := maps.Clone(named)
	m["alphabetic"], m["lowercase"], m["uppercase"] = m["alpha"], m["lower"], m["upper"]
	m["any"] = runeSet(nil).negated
	m["assigned"] = func() runeSet { return category("Cn").negated() }
	for _, name := range properties {
		m[plainName(name)] = func() runeSet { return union(fromTable(unicode.Properties[name]), newer[name]) }
	}
	for name, table := range unicode.Scripts {
		m[plainName(name)] = func() runeSet { return union(fromTable(table), newer[name]) }
	}
	for long, script := range map[string]string{"hani": "Han", "hira": "Hiragana", "kana": "Katakana", "hang": "Hangul", "latn": "Latin", "cyrl": "Cyrillic", "grek": "Greek", "arab": "Arabic"} {
		m[long] = m[plainName(script)]
	}
	for name := range unicode.Categories {
		m[plainName(name)] = func() runeSet { return category(name) }
	}
	for long, name := range unicode.CategoryAliases {
		m[plainName(long)] = func() runeSet { return category(name) }
	}
	delete(m, "cs") // no text has any
	return m
})

func plainName(name string) string {
	return strings.ToLower(strings.NewReplacer(" ", "", "-", "", "_", "").Replace(name))
}

func property(name string) (runeSet, bool) { return made(propertyNames(), plainName(name)) }
