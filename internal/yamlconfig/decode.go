package yamlconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"glimpse/internal/suggest"

	"go.yaml.in/yaml/v3"
)

// MaxBytes is the largest file that Decode accepts; configurations are written by
// hand.
const MaxBytes = 1 << 20

// Defaulter is implemented by pointers to list elements whose defaults depend on
// other keys of the element. It is called before the element is read; value returns
// the scalar at a key of the element, "" where there is none.
type Defaulter interface {
	Defaults(value func(key string) string)
}

// Scalar is implemented by pointers to types, lists most of all, that may also be
// written as one scalar.
type Scalar interface {
	SetScalar(text string) error
}

// Decode reads data, the text of the named file, into the struct that into points
// to. Each of sets is KEY=VALUE with a dotted key (train.adapters.0.rows=16) and
// takes the place of the file's value; VALUE is YAML.
func Decode(file string, data []byte, sets []string, into any) error {
	if len(data) > MaxBytes {
		return fmt.Errorf("%s: %d bytes, want a configuration of at most %d", file, len(data), MaxBytes)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return fmt.Errorf("%s: %s", file, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if more := yaml.NewDecoder(bytes.NewReader(data)); more.Decode(new(yaml.Node)) == nil {
		var second yaml.Node
		if err := more.Decode(&second); !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s:%d: a second document, want one", file, max(second.Line, 1))
		}
	}
	root := &yaml.Node{Kind: yaml.MappingNode, Line: 1}
	if doc.Kind == yaml.DocumentNode && !(doc.Content[0].Kind == yaml.ScalarNode && doc.Content[0].Tag == "!!null") {
		root = doc.Content[0]
	}
	for _, s := range sets {
		if err := setKey(root, s); err != nil {
			return err
		}
	}
	return (&decoder{file: file}).decodeValue(root, reflect.ValueOf(into).Elem(), "")
}

// setKey puts one KEY=VALUE into the tree.
func setKey(root *yaml.Node, text string) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("--set %s: %s", text, fmt.Sprintf(format, args...))
	}
	key, value, ok := strings.Cut(text, "=")
	if !ok || key == "" {
		return fail("want KEY=VALUE")
	}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(value), &doc); err != nil {
		return fail("%s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	leaf := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str"}
	if doc.Kind == yaml.DocumentNode {
		leaf = doc.Content[0]
	}
	markSet(leaf, text)
	at, path := root, strings.Split(key, ".")
	for i, name := range path {
		last := i == len(path)-1
		switch at.Kind {
		case yaml.SequenceNode:
			n, err := strconv.Atoi(name)
			if err != nil || n < 0 || n >= len(at.Content) {
				return fail("%s: got element %q, want 0 to %d", strings.Join(path[:i], "."), name, len(at.Content)-1)
			}
			if last {
				at.Content[n] = leaf
			}
			at = at.Content[n]
		case yaml.MappingNode:
			j := 0
			for j < len(at.Content) && at.Content[j].Value != name {
				j += 2
			}
			if j >= len(at.Content) {
				k := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name}
				v := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
				markSet(k, text)
				markSet(v, text)
				at.Content = append(at.Content, k, v)
			}
			if last {
				at.Content[j+1] = leaf
			}
			at = at.Content[j+1]
		default:
			return fail("%s is a single value, want a mapping or a list", strings.Join(path[:i], "."))
		}
	}
	return nil
}

// markSet makes errors name the flag instead of a line of the file. HeadComment is
// never read otherwise.
func markSet(n *yaml.Node, text string) {
	n.HeadComment = "--set " + text
	for _, c := range n.Content {
		markSet(c, text)
	}
}

type decoder struct{ file string }

func (d *decoder) errorAt(n *yaml.Node, path, format string, args ...any) error {
	at := fmt.Sprintf("%s:%d", d.file, n.Line)
	if strings.HasPrefix(n.HeadComment, "--set ") {
		at = n.HeadComment
	}
	if path != "" {
		at += ": " + path
	}
	return fmt.Errorf("%s: %s", at, fmt.Sprintf(format, args...))
}

// fieldsOf are the fields of a struct by their keys, as reflect.Value.FieldByIndex takes them. As in
// encoding/json, embedded structs give theirs and the shallower of two equal keys wins.
func fieldsOf(t reflect.Type) map[string][]int {
	out := make(map[string][]int)
	for _, f := range reflect.VisibleFields(t) {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch shallower, ok := out[key]; {
		case key == "-" || !f.IsExported() || f.Anonymous && key == "":
		case key == "":
			panic("yamlconfig: field " + f.Name + " without a json tag")
		case !ok || len(f.Index) < len(shallower):
			out[key] = f.Index
		}
	}
	return out
}

func joinKey(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func (d *decoder) decodeValue(n *yaml.Node, v reflect.Value, path string) error {
	if n.Kind == yaml.AliasNode {
		// Aliases cannot nest into themselves, but into each other: what they may
		// expand to is bounded by refusing mappings and lists behind them.
		if n.Alias.Kind != yaml.ScalarNode {
			return d.errorAt(n, path, "got an alias of a mapping or list, want the values themselves")
		}
		n = n.Alias
	}
	if s, ok := v.Addr().Interface().(Scalar); ok && n.Kind == yaml.ScalarNode {
		if err := s.SetScalar(n.Value); err != nil {
			return d.errorAt(n, path, "%v", err)
		}
		return nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return d.decodeValue(n, v.Elem(), path)
	case reflect.Struct:
		return d.decodeObject(n, v, path)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			return d.errorAt(n, path, "got %s, want a list", describeNode(n))
		}
		out := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
		for i, c := range n.Content {
			if def, ok := out.Index(i).Addr().Interface().(Defaulter); ok {
				def.Defaults(func(key string) string { return lookup(c, key) })
			}
			if err := d.decodeValue(c, out.Index(i), joinKey(path, strconv.Itoa(i))); err != nil {
				return err
			}
		}
		v.Set(out)
		return nil
	}
	return d.scalar(n, v, path)
}

// lookup is the scalar at a key of a mapping.
func lookup(n *yaml.Node, key string) string {
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key && n.Content[i+1].Kind == yaml.ScalarNode {
				return n.Content[i+1].Value
			}
		}
	}
	return ""
}

func (d *decoder) decodeObject(n *yaml.Node, v reflect.Value, path string) error {
	if n.Kind != yaml.MappingNode {
		return d.errorAt(n, path, "got %s, want a mapping", describeNode(n))
	}
	fields := fieldsOf(v.Type())
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if seen[k.Value] {
			return d.errorAt(k, path, "key %q twice, want it once", k.Value)
		}
		seen[k.Value] = true
		index, ok := fields[k.Value]
		if !ok {
			keys := slices.Sorted(maps.Keys(fields))
			if name, ok := suggest.Nearest(k.Value, keys); ok {
				return d.errorAt(k, path, "unknown key %q, did you mean %q? Known keys: %s", k.Value, name, strings.Join(keys, ", "))
			}
			return d.errorAt(k, path, "unknown key %q, known keys: %s", k.Value, strings.Join(keys, ", "))
		}
		if err := d.decodeValue(n.Content[i+1], v.FieldByIndex(index), joinKey(path, k.Value)); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, path string) error {
	want := map[reflect.Kind]string{
		reflect.String: "text", reflect.Bool: "true or false", reflect.Float64: "a number", reflect.Float32: "a number",
	}[v.Kind()]
	switch v.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64:
		want = "a whole number"
	case reflect.Uint64, reflect.Uint32:
		want = "a whole number of at least 0"
	}
	if want == "" {
		panic("yamlconfig: field of type " + v.Type().String())
	}
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return d.errorAt(n, path, "got %s, want %s", describeNode(n), want)
	}
	text := n.Value
	plain := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) == 0
	ok := false
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
		return nil
	case reflect.Bool:
		ok = text == "true" || text == "false"
		v.SetBool(text == "true")
	case reflect.Float64, reflect.Float32:
		f, err := strconv.ParseFloat(text, v.Type().Bits()) // YAML 1.2 has 1e-3, which the library takes for text
		ok = err == nil && f-f == 0
		v.SetFloat(f)
	case reflect.Uint64, reflect.Uint32:
		u, err := strconv.ParseUint(text, 10, v.Type().Bits())
		ok = err == nil
		v.SetUint(u)
	default:
		i, err := strconv.ParseInt(text, 10, v.Type().Bits())
		ok = err == nil
		v.SetInt(i)
	}
	if !ok || !plain {
		return d.errorAt(n, path, "got %s, want %s", describeNode(n), want)
	}
	return nil
}

// describeNode shows a node in an error.
func describeNode(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if n.Tag == "!!null" {
		return "nothing"
	}
	text := n.Value
	if r := []rune(text); len(r) > 40 {
		text = string(r[:40]) + "…"
	}
	return strconv.Quote(text)
}

// Encode writes a struct by its json tags as YAML, in the order of its fields. What
// it writes, Decode reads.
func Encode(v any) ([]byte, error) {
	return encode(v, func(n *yaml.Node) {
		if n.Kind == yaml.SequenceNode && !slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return c.Kind != yaml.ScalarNode }) {
			n.Style = yaml.FlowStyle
		}
	})
}

// EncodeSet is Encode without what is null, and with a line for every element of a list.
func EncodeSet(v any) ([]byte, error) {
	return encode(v, func(n *yaml.Node) {
		for i := len(n.Content) - 1; n.Kind == yaml.MappingNode && i > 0; i -= 2 {
			if n.Content[i].Tag == "!!null" {
				n.Content = slices.Delete(n.Content, i-1, i+1)
			}
		}
	})
}

// encode lays out what JSON, which is YAML with its keys in order, has of v: without brackets and needless quotes, and each
// node as edit has it.
func encode(v any, edit func(n *yaml.Node)) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	var layOut func(n *yaml.Node)
	layOut = func(n *yaml.Node) {
		n.Style = 0
		edit(n)
		for _, c := range n.Content {
			layOut(c)
		}
	}
	layOut(&doc)
	return yaml.Marshal(&doc)
}
