package checkpoints

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// decodeExact decodes a JSON object into the struct that dst points to. Unlike
// encoding/json it wants exactly the keys in the struct's tags, in their case,
// each once; missing and unknown keys are reported together. A null is refused
// except where the field is a pointer. Nested structs and lists of them are treated the same way;
// fields of other types are decoded as usual, without duplicate keys. The error
// is ErrCorrupt and names keys by their path.
func decodeExact(data []byte, dst any) error {
	if !utf8.Valid(data) {
		return Corruptf("not valid UTF-8")
	}
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil { // bounds the depth, too
		return Corruptf("not valid JSON: %v", err)
	}
	if err := checkUniqueKeys(data); err != nil {
		return err
	}
	return decodeStruct(data, "", reflect.ValueOf(dst).Elem())
}

// decodeVersioned is decodeExact for a document with a format and a version, which come first: another version may
// have other keys.
func decodeVersioned(data []byte, format string, version int, dst any) error {
	var got struct {
		Format  string
		Version *int
	}
	if err := json.Unmarshal(data, &got); err != nil {
		return Corruptf("not valid JSON: %v", err)
	}
	if got.Format != format || got.Version == nil {
		return Corruptf("format: got %.100q, want %q and a version", got.Format, format)
	}
	if *got.Version != version {
		return versionError{got: *got.Version, want: version}
	}
	return decodeExact(data, dst)
}

func decodeStruct(data []byte, path string, dst reflect.Value) error {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(data, &values); err != nil || values == nil {
		return Corruptf("%sgot %.40q, want an object", prefix(path), data)
	}
	var missing []string
	for i := range dst.NumField() {
		key, optional := strings.CutSuffix(dst.Type().Field(i).Tag.Get("json"), ",omitempty")
		raw, ok := values[key]
		if !ok && optional {
			continue
		}
		if !ok {
			missing = append(missing, path+key)
			continue
		}
		delete(values, key)
		field := dst.Field(i)
		if string(raw) == "null" && field.Kind() != reflect.Pointer {
			return Corruptf("%s: got null", path+key)
		}
		if field.Kind() == reflect.Struct {
			if err := decodeStruct(raw, path+key+".", field); err != nil {
				return err
			}
			continue
		}
		if field.Kind() == reflect.Slice && field.Type().Elem().Kind() == reflect.Struct {
			var elements []json.RawMessage
			if err := json.Unmarshal(raw, &elements); err != nil {
				return Corruptf("%s: %v", path+key, err)
			}
			for i, element := range elements { // grown as it is read: a struct is larger than its "{}"
				next := reflect.New(field.Type().Elem()).Elem()
				if err := decodeStruct(element, fmt.Sprintf("%s%s[%d].", path, key, i), next); err != nil {
					return err
				}
				field.Set(reflect.Append(field, next))
			}
			continue
		}
		if err := json.Unmarshal(raw, field.Addr().Interface()); err != nil {
			return Corruptf("%s: %v", path+key, err)
		}
	}
	var p problems
	p.addNames("missing keys", missing)
	p.addNames("unknown keys", slices.Collect(maps.Keys(values)))
	return p.in(prefix(path))
}

func prefix(path string) string {
	if path == "" {
		return ""
	}
	return strings.TrimSuffix(path, ".") + ": "
}

// checkUniqueKeys reports a key that an object, at any depth, has twice, with its place.
// Data is valid JSON.
func checkUniqueKeys(data []byte) error {
	// Half a surrogate pair in a string, which jsontext calls invalid UTF-8, is as good
	// here as it is to encoding/json.
	_, err := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowInvalidUTF8(true)).ReadValue()
	var at *jsontext.SyntacticError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &at) && errors.Is(err, jsontext.ErrDuplicateName):
		within := ""
		if parent := at.JSONPointer.Parent(); parent != "" {
			within = fmt.Sprintf(" in %.200q", parent)
		}
		return Corruptf("duplicate key %.200q%s at byte %d", at.JSONPointer.LastToken(), within, at.ByteOffset)
	}
	return Corruptf("not valid JSON: %v", err)
}

// encodeJSON renders v without the escapes for HTML and with a final newline.
func encodeJSON(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode JSON: %w", err)
	}
	return b.Bytes(), nil
}

// compactObject checks that raw is a JSON object without duplicate keys and
// returns it without white space; nothing at all is an empty object.
func compactObject(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return json.RawMessage("{}"), nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return nil, fmt.Errorf("not valid JSON: %w", err)
	}
	if !utf8.Valid(raw) || b.Bytes()[0] != '{' {
		return nil, fmt.Errorf("got %.40q, want a JSON object in UTF-8", raw)
	}
	return b.Bytes(), checkUniqueKeys(b.Bytes())
}
