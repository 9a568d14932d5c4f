// Package settings says in which settings two configurations differ.
package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Difference is a setting that two configurations have different values of; "" is none.
type Difference struct {
	Key     string // as "adapters.0.rows"
	Was, Is string
}

// Differences are those between two configurations in JSON, by their keys.
func Differences(was, is []byte) (list []Difference, err error) {
	before, now := make(map[string]string), make(map[string]string)
	for _, x := range []struct {
		text []byte
		into map[string]string
	}{{was, before}, {is, now}} {
		var v any
		d := json.NewDecoder(bytes.NewReader(x.text))
		d.UseNumber() // seeds have more digits than a float64
		if err := d.Decode(&v); err != nil {
			return nil, err
		}
		flatten("", v, x.into)
	}
	all := maps.Clone(before)
	maps.Copy(all, now)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if a, b := before[key], now[key]; a != b {
			list = append(list, Difference{key, a, b})
		}
	}
	return list, nil
}

// flatten notes the values in v by their dotted keys.
func flatten(key string, v any, out map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		for name, x := range v {
			flatten(strings.TrimPrefix(key+"."+name, "."), x, out)
		}
	case []any:
		for i, x := range v {
			flatten(fmt.Sprintf("%s.%d", key, i), x, out)
		}
	default:
		out[key] = fmt.Sprint(v)
	}
}
