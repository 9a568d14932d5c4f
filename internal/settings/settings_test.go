package settings

import (
	"slices"
	"testing"
)

func TestDifferences(t *testing.T) {
	for name, c := range map[string]struct {
		was, is string
		want    []Difference
	}{
		"none":        {`{"a": 1, "b": [1, 2]}`, `{"b": [1, 2], "a": 1}`, nil},
		"value":       {`{"a": {"b": 1}}`, `{"a": {"b": 2}}`, []Difference{{"a.b", "1", "2"}}},
		"one more":    {`{"a": [1]}`, `{"a": [1, 2]}`, []Difference{{"a.1", "", "2"}}},
		"one fewer":   {`{"a": "x"}`, `{}`, []Difference{{"a", "x", ""}}},
		"large seeds": {`{"s": 18446744073709551615}`, `{"s": 18446744073709551614}`, []Difference{{"s", "18446744073709551615", "18446744073709551614"}}},
		"several":     {`{"b": true, "a": "1"}`, `{"b": false, "a": "2"}`, []Difference{{"a", "1", "2"}, {"b", "true", "false"}}},
	} {
		if got, err := Differences([]byte(c.was), []byte(c.is)); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v (%v), want %v", name, got, err, c.want)
		}
	}
	if _, err := Differences([]byte("{"), []byte("{}")); err == nil {
		t.Error("what is no JSON: no error")
	}
}
