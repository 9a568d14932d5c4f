package constraint

import (
	"slices"
)

// emitObject writes the members in the order in which the schemas name them, then others.
func (c *schemaCompiler) emitObject(s *shape) (*expr, error) {
	o := objectEmitter{schemaCompiler: c, shape: s, known: make(map[string]bool)}
	for _, part := range s.objects {
		o.declare(part.names)
	}
	o.closed = c.strict && len(o.names) > 0 && !slices.ContainsFunc(s.objects, func(p objectPart) bool { return p.additional != nil })
	o.declare(s.required)
	if len(s.another) > 0 {
		return o.emitAnother()
	}
	if err := o.readClasses(); err != nil {
		return nil, err
	}
	if err := o.readCounts(); err != nil {
		return nil, err
	}
	if o.counts.empty() {
		return never, nil
	}
	return o.emit()
}

// objectEmitter writes the objects of a shape.
type objectEmitter struct {
	*schemaCompiler
	*shape
	names    []string // that schemas declare or require
	known    map[string]bool
	closed   bool
	classes  []nameClass // of other names
	counts               // of members
	distinct int         // numbers of members so far that are told apart: 0 to it
}

func (o *objectEmitter) declare(list []string) {
	for _, name := range list {
		if !o.known[name] {
			o.known[name] = true
			o.names = append(o.names, name)
		}
	}
}

// valuesOf is the schemas that a declared name's value has to be valid against.
func (o *objectEmitter) valuesOf(name string) ([]located, error) {
	var list []located
	for _, part := range o.objects {
		l, found := part.properties[name]
		if found {
			list = append(list, l)
		}
		for i, text := range part.texts {
			switch has, err := o.patternHas(text, name); {
			case err != nil:
				return nil, err
			case has:
				list = append(list, part.patterns[i])
				found = true
			}
		}
		if !found && part.additional != nil {
			list = append(list, *part.additional)
		}
	}
	if len(o.shape.names) > 0 {
		text := newShape()
		text.limit(stringType)
		for _, l := range o.shape.names {
			if err := o.collect(text, l, 0); err != nil {
				return nil, err
			}
		}
		text.restrict(o.shape.names[0], []*value{textValue(name)})
		x, err := o.schemaCompiler.emit(text)
		if err != nil {
			return nil, err
		}
		if x.isNever() {
			list = append(list, o.shape.names[0].child(falseValue, o.shape.names[0].path+"?"+name))
		}
	}
	return list, nil
}

// emitAnother writes objects with another member: one of those that are declared, or one after them.
func (o *objectEmitter) emitAnother() (*expr, error) {
	a, rest := o.another[0], o.shape.clone()
	rest.another = rest.another[1:]
	var list []*expr
	for _, name := range o.names {
		if has, err := o.covers(a, name); err != nil {
			return nil, err
		} else if !has {
			continue
		}
		one := rest.clone()
		if !slices.Contains(one.required, name) {
			one.required = append(one.required, name)
		}
		one.objects = append(one.objects, objectPart{properties: map[string]located{name: a.schema}})
		one.types = objectType
		x, err := o.schemaCompiler.emit(one)
		if err != nil {
			return nil, err
		}
		list = append(list, x)
	}
	if rest.last != nil {
		return nil, a.schema.errorf("two other members that have to be there are not enforced")
	}
	rest.last = &a
	x, err := o.emitObject(rest)
	return alt(append(list, orNever(x))...), err
}

// readCounts finds whether the number of members has to be counted. Names that are not declared may be
// written twice, which counts once, so that more than one of them is not enforced from below.
func (o *objectEmitter) readCounts() error {
	required := len(o.required)
	open := len(o.classes) > 0
	if o.counts = o.members; o.counts.empty() {
		return nil
	}
	if o.least <= max(required, 1) {
		o.least = 0 // with what emit says of none
	}
	if o.most != unbounded && !open && o.most >= len(o.names) {
		o.most = unbounded
	}
	if o.least > len(o.names)+1 && open || o.least > maxCounted || o.most > maxCounted && len(o.names) > 0 {
		return o.shape.at.memberAt("minProperties").errorf("keyword minProperties is not enforced above 1 beyond the names that are declared, since others may repeat, and numbers of members up to %d", maxCounted)
	}
	if o.least > 1 || o.most != unbounded && len(o.names) > 0 {
		o.distinct = max(o.least, o.most)
	}
	return nil
}

// maxCounted bounds the numbers of members that are told apart.
const maxCounted = 64

// emit writes the members from the last one on. After so many members, next is what may follow a comma or the opening
// bracket, more what may follow a member.
func (o *objectEmitter) emit() (*expr, error) {
	next, more, err := o.emitOthers()
	if err != nil {
		return nil, err
	}
	optional := o.last == nil // all of the rest
	for i, name := range slices.Backward(o.names) {
		list, err := o.valuesOf(name)
		if err != nil {
			return nil, err
		}
		x, err := o.compile(list...)
		if err != nil {
			return nil, err
		}
		needed := slices.Contains(o.required, name)
		optional = optional && !needed
		before, after := make([]*expr, len(next)), make([]*expr, len(more))
		for k := range next {
			member := never
			if k < o.distinct || o.most == unbounded {
				member = seq(lit(jsonText(name)), jsonColon, x, more[min(k+1, o.distinct)])
			}
			if k > i {
				before[k], after[k] = never, never // there were not so many names
				continue
			}
			switch {
			case needed:
				before[k] = member
			case !member.isNever():
				before[k] = o.rule("members from "+name, alt(o.rule("member "+name, member), next[k]))
			default:
				before[k] = next[k]
			}
			if after[k] = seq(jsonComma, before[k]); optional && k >= o.least {
				after[k] = opt(after[k])
			}
			after[k] = o.rule("more members from "+name, after[k])
		}
		next, more = before, after
	}
	return bracketed("{", "}", next[0], optional && o.members.least == 0), nil
}

// emitOthers is what follows the members with declared names.
func (o *objectEmitter) emitOthers() (next, more []*expr, err error) {
	var members, lasts []*expr
	for _, class := range o.classes {
		x, err := o.compile(class.values...)
		if err != nil {
			return nil, nil, err
		}
		members = append(members, seq(class.name, jsonColon, x))
		if o.last != nil && class.last {
			if x, err = o.compile(append(slices.Clip(class.values), o.last.schema)...); err != nil {
				return nil, nil, err
			}
			lasts = append(lasts, seq(class.name, jsonColon, x))
		}
	}
	member, last := o.rule("another member", alt(members...)), o.rule("the last member", alt(lasts...))
	if len(members) == 0 {
		member = never
	}
	if len(lasts) == 0 {
		last = never
	}
	for k := range o.distinct + 1 {
		left := unbounded
		if o.most != unbounded {
			left = o.most - k
		}
		some := never
		switch {
		case left == 0 || k+1 < o.least:
		case o.last != nil:
			some = seq(rep(seq(member, jsonComma), 0, fewer(left)), last)
		default:
			some = seq(member, o.rule("more members", rep(seq(jsonComma, member), 0, fewer(left))))
		}
		if !some.isNever() {
			some = o.rule("other members", some)
		}
		next = append(next, some)
		following := seq(jsonComma, some)
		if o.last == nil && k >= o.least {
			following = opt(following)
		}
		more = append(more, o.rule("other members follow", following))
	}
	return next, more, nil
}

// fewer is one less than a bound.
func fewer(n int) int {
	if n == unbounded {
		return unbounded
	}
	return n - 1
}

// rule names an expression that is used more than once.
func (c *schemaCompiler) rule(name string, x *expr) *expr {
	if x.isNever() || x == empty {
		return x
	}
	c.nodes += x.refs(func(*rule) {})
	return ref(&rule{name: name, body: x, keep: true})
}
