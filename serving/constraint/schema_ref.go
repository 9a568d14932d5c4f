package constraint

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// A resource is a schema with an identifier of its own, which references in it are relative to.
type resource struct {
	uri  *url.URL
	root located
}

// readResources finds the draft, and what $id and $anchor name.
func (c *schemaCompiler) readResources(root *value) {
	c.draft = 2020
	if v := root.fields["$schema"]; v != nil {
		for name, draft := range map[string]int{"draft-03": 4, "draft-04": 4, "draft-06": 6, "draft-07": 7, "2019-09": 2019} {
			if strings.Contains(v.text, name) {
				c.draft = draft
			}
		}
	}
	c.resources, c.byURI = make(map[*value]*resource), make(map[string]located)
	first := &resource{uri: &url.URL{}}
	c.root = located{value: root, path: "#", resources: c.resources, base: first}
	first.root = c.root
	c.readResource(c.root)
	if r := c.resources[root]; r != nil {
		c.root.base = r
		r.root = c.root
	}
}

func (c *schemaCompiler) readResource(l located) {
	base := l.base
	name := func(uri string, to located) {
		if _, known := c.byURI[uri]; !known {
			c.byURI[uri] = to
		}
	}
	key := "$id"
	if c.draft == 4 {
		key = "id"
	}
	if v := l.fields[key]; v != nil && v.kind == stringType {
		if uri, err := base.uri.Parse(v.text); err == nil && strings.HasPrefix(v.text, "#") {
			name(uri.String(), l)
		} else if err == nil {
			uri.Fragment = ""
			base = &resource{uri: uri, root: l}
			l.base, base.root.base = base, base
			c.resources[l.value] = base
			name(uri.String(), base.root)
		}
	}
	if v := l.fields["$anchor"]; v != nil && v.kind == stringType {
		uri := *base.uri
		uri.Fragment = v.text
		name(uri.String(), l)
	}
	for _, k := range l.keys {
		if k == "enum" || k == "const" || k == "default" || k == "examples" || k == "example" {
			continue
		}
		c.readResource(l.memberAt(k))
	}
	for i := range l.items {
		c.readResource(l.element(i))
	}
}

// refAlone tells whether a draft passes over what is beside $ref.
func (c *schemaCompiler) refAlone() bool { return c.draft <= 7 }

// resolve follows a reference within the schema.
func (c *schemaCompiler) resolve(at located) (located, error) {
	if at.kind != stringType {
		return located{}, at.errorf("want a string")
	}
	text, fragment, _ := strings.Cut(at.text, "#")
	l := at.base.root
	if text != "" {
		uri, err := at.base.uri.Parse(text)
		if err != nil {
			return located{}, at.errorf("$ref %q: %v", at.text, err)
		}
		known := false
		if l, known = c.byURI[uri.String()]; !known {
			return located{}, at.errorf("$ref %q is not enforced, only references into the same schema are (#/…)", at.text)
		}
	}
	if fragment != "" && !strings.HasPrefix(fragment, "/") {
		uri := *l.base.uri
		uri.Fragment = fragment
		to, known := c.byURI[uri.String()]
		if !known {
			return located{}, at.errorf("$ref %q: there is no anchor %s", at.text, fragment)
		}
		return to, nil
	}
	if decoded, err := url.PathUnescape(fragment); err == nil {
		fragment = decoded
	}
	for _, part := range strings.Split(fragment, "/")[1:] {
		key := unescapePointer.Replace(part)
		index, err := strconv.Atoi(key)
		switch {
		case l.fields[key] != nil:
			l = l.memberAt(key)
		case err == nil && index >= 0 && index < len(l.items):
			l = l.element(index)
		default:
			return located{}, at.errorf("$ref %q: there is no %s in %s", at.text, key, l.path)
		}
	}
	if l.kind&(objectType|booleanType) == 0 {
		return located{}, at.errorf("$ref %q: got %s, want a schema", at.text, fmt.Sprint(l.path))
	}
	return l, nil
}
