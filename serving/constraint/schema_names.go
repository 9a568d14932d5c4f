package constraint

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// nameClass is names that the same schemas are about.
type nameClass struct {
	name   *expr
	values []located
	last   bool // a member that is last may have them
}

// patternHas tells whether a pattern is found in a name.
func (c *schemaCompiler) patternHas(text located, name string) (bool, error) {
	x, err := c.pattern(text, false)
	if err != nil {
		return false, err
	}
	if x, err = regular([]*expr{x, lit(escapeText(name))}, nil, &c.work); err != nil {
		return false, text.errorf("%v", err)
	}
	return !x.isNever(), nil
}

// covers tells whether a declared name may be the member that has to be there.
func (c *schemaCompiler) covers(a another, name string) (bool, error) {
	if a.pattern >= 0 {
		return c.patternHas(a.part.texts[a.pattern], name)
	}
	if _, declared := a.part.properties[name]; declared {
		return false, nil
	}
	for _, text := range a.part.texts {
		if has, err := c.patternHas(text, name); has || err != nil {
			return false, err
		}
	}
	return true, nil
}

// maxClasses bounds the classes of names.
const maxClasses = 64

// readClasses splits the names that are not declared by the patterns that they match.
func (o *objectEmitter) readClasses() error {
	if o.closed {
		return nil
	}
	r := nameReader{objectEmitter: o, declared: -1}
	if err := r.readPredicates(); err != nil {
		return err
	}
	if len(r.predicates) == 0 && len(o.shape.names) == 0 {
		name := ref(jsonString)
		if len(o.names) > 0 {
			name = o.otherName()
		}
		r.addClass(name, nil)
		return nil
	}
	base := []*expr{quoted(ref(jsonPlain))}
	if len(o.shape.names) > 0 {
		l := o.shape.names[0]
		x, err := o.compile(append(slices.Clip(o.shape.names), l.child(schemaOf("type", textValue("string")), l.path+"?string"))...)
		if err != nil {
			return err
		}
		if len(r.predicates) == 0 && len(o.names) == 0 {
			r.addClass(x, nil)
			return nil
		}
		base = append(base, x)
	}
	split, err := r.splits(base)
	for _, one := range split {
		r.addClass(one.name, one.holds)
	}
	return err
}

// nameReader tells names apart by predicates.
type nameReader struct {
	*objectEmitter
	keys       []string // of the predicates
	predicates []*expr  // in the quotes
	patterns   [][]int  // the predicates of each part's patterns
	ofLast     []int    // those of the last member's part
	declared   int      // the predicate of the names that this part declares, −1 for none
}

// find adds a predicate, unless it is known.
func (r *nameReader) find(key string, make func() (*expr, error)) (int, error) {
	if i := slices.Index(r.keys, key); i >= 0 {
		return i, nil
	}
	x, err := make()
	r.keys, r.predicates = append(r.keys, key), append(r.predicates, x)
	return len(r.keys) - 1, err
}

// patternsOf are the predicates of a part's patterns.
func (r *nameReader) patternsOf(part objectPart) (out []int, err error) {
	for _, text := range part.texts {
		i, err := r.find("pattern "+text.text, func() (*expr, error) { return r.pattern(text, false) })
		if err != nil {
			return nil, err
		}
		out = append(out, i)
	}
	return out, nil
}

func (r *nameReader) readPredicates() error {
	for _, part := range r.objects {
		at, err := r.patternsOf(part)
		if err != nil {
			return err
		}
		r.patterns = append(r.patterns, at)
	}
	if r.last == nil {
		return nil
	}
	var err error
	if r.ofLast, err = r.patternsOf(r.last.part); err != nil {
		return err
	}
	if r.last.pattern < 0 && len(r.last.part.names) > 0 {
		escaped := make([]string, len(r.last.part.names))
		for i, name := range r.last.part.names {
			escaped[i] = escapeText(name)
		}
		r.declared, err = r.find("names of the other", func() (*expr, error) { return words(escaped), nil })
	}
	return err
}

// addClass adds names for which some predicates hold.
func (r *nameReader) addClass(name *expr, holds []bool) {
	out := nameClass{name: name, last: true}
	for i, part := range r.objects {
		found := false
		for j, p := range r.patterns[i] {
			if holds[p] {
				out.values = append(out.values, part.patterns[j])
				found = true
			}
		}
		if !found && part.additional != nil {
			out.values = append(out.values, *part.additional)
		}
	}
	if r.last != nil && r.last.pattern >= 0 {
		out.last = holds[r.ofLast[r.last.pattern]]
	} else if r.last != nil {
		out.last = !slices.ContainsFunc(r.ofLast, func(i int) bool { return holds[i] }) && (r.declared < 0 || !holds[r.declared])
	}
	if !slices.ContainsFunc(out.values, func(l located) bool { return l.kind == booleanType && l.text == "false" }) {
		r.classes = append(r.classes, out)
	}
}

// splits are the sets of names that the predicates tell apart, of those that match all of base and are not declared.
func (r *nameReader) splits(base []*expr) (split []nameSplit, err error) {
	key := strings.Join(slices.Concat(slices.Sorted(slices.Values(r.names)), []string{""}, r.keys, []string{""}), "\x00")
	for _, l := range r.shape.names {
		key += l.key() + "\x00"
	}
	if split, known := r.schemaCompiler.splits[key]; known {
		return split, nil
	}
	var none []*expr
	if len(r.names) > 0 {
		declared := make([]string, len(r.names))
		for i, name := range r.names {
			declared[i] = jsonText(name)
		}
		none = append(none, words(declared))
	}
	err = r.split(base, none, r.predicates, nil, func(name *expr, holds []bool) { split = append(split, nameSplit{name, holds}) })
	switch {
	case err != nil:
		return nil, err
	case len(split) > maxClasses:
		return nil, fmt.Errorf("%w: more than %d sets of patterns for the same names", errTooLarge, maxClasses)
	}
	r.schemaCompiler.splits[key] = split
	return split, nil
}

// nameSplit is the names for which some predicates hold and the others do not.
type nameSplit struct {
	name  *expr
	holds []bool
}

// otherName is a name that is not declared.
func (o *objectEmitter) otherName() *expr {
	sorted := slices.Sorted(slices.Values(o.names))
	key := strings.Join(sorted, "\x00")
	if o.others[key] == nil {
		o.others[key] = o.rule("another name", quoted(otherThan(sorted)))
	}
	return o.others[key]
}

// split calls class for each set of predicates that hold of some name together.
func (o *objectEmitter) split(all, none, predicates []*expr, holds []bool, class func(*expr, []bool)) error {
	name, err := regular(all, none, &o.work)
	switch {
	case err != nil:
		return o.shape.at.errorf("names of members: %v", err)
	case name.isNever():
		return nil
	case len(holds) == len(predicates):
		class(o.rule("another name", name), slices.Clone(holds))
		return nil
	}
	p := quoted(predicates[len(holds)])
	return errorOf(
		o.split(append(slices.Clip(all), p), none, predicates, append(slices.Clip(holds), true), class),
		o.split(all, append(slices.Clip(none), p), predicates, append(slices.Clip(holds), false), class),
	)
}

// otherThan matches the characters of strings, as asWritten has them, that are not in the list.
func otherThan(list []string) *expr {
	list = slices.Clone(list)
	slices.Sort(list)
	return otherRunes(slices.Compact(list))
}
func otherRunes(sorted []string) *expr {
	if len(sorted) == 0 {
		return ref(jsonPlain)
	}
	mayEnd := true
	after := make(map[rune][]string)
	var heads []rune
	for _, s := range sorted {
		if s == "" {
			mayEnd = false
			continue
		}
		head := []rune(s)[0]
		if after[head] == nil {
			heads = append(heads, head)
		}
		after[head] = append(after[head], strings.TrimPrefix(s, string(head)))
	}
	list := []*expr{seq(otherChar(heads), ref(jsonPlain))}
	for _, head := range heads {
		list = append(list, seq(asWritten(runeRange{head, head}), otherRunes(after[head])))
	}
	if mayEnd {
		list = append(list, empty)
	}
	return alt(list...)
}

// otherChar is a character, as asWritten has it, that is none of some. Most lists are of plain ones, beside which
// all characters that take more than a byte are shared.
func otherChar(list []rune) *expr {
	single := &expr{kind: class}
	for c := range rune(utf8.RuneSelf) {
		if len(jsonEscape(c)) == 1 && !slices.Contains(list, c) {
			single.class.addRange(byte(c), byte(c))
		}
	}
	if slices.ContainsFunc(list, func(c rune) bool { return len(jsonEscape(c)) > 1 }) {
		return asWritten(anyBut(list...)...)
	}
	return alt(single, ref(jsonLong))
}
