package constraint

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestHostileSchemas: schemas whose alternatives, names and patterns multiply are taken or refused in bounded time and memory.
func TestHostileSchemas(t *testing.T) {
	list := func(n int, element func(i int) string) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = element(i)
		}
		return strings.Join(parts, ", ")
	}
	nested := `{"type": "string"}`
	for i := range 12 {
		nested = fmt.Sprintf(`{"not": {"oneOf": [%s, {"required": ["a%d"]}, {"properties": {"b": %[1]s}}]}}`, nested, i)
		if len(nested) > 1<<17 {
			break
		}
	}
	for _, c := range []struct{ name, schema string }{
		{"patterns with many states", `{"patternProperties": {` + list(30, func(i int) string { return fmt.Sprintf(`"a.{%d}b": {"type": "integer"}`, i+5) }) + `}}`},
		{"patterns that overlap", `{"patternProperties": {` + list(100, func(i int) string { return fmt.Sprintf(`"%c.*%c{%d}": {"minimum": %d}`, 'a'+i%7, 'a'+i%11, i+1, i) }) + `}}`},
		{"look-ahead", `{"pattern": "` + strings.Repeat(`(?=.*a.{9}b)(?!.*c.{8}d)`, 300) + `"}`},
		{"look-ahead repeated", `{"pattern": "((((((a(?!b)){1,8}c){1,8}d){1,8}e){1,8}f){1,8}g){1,8}"}`},
		{"oneOf of equal objects", `{"oneOf": [` + list(60, func(int) string {
			return `{"type": "object", "properties": {` + list(20, func(i int) string { return fmt.Sprintf(`"p%d": {"type": "integer"}`, i) }) + `}}`
		}) + `]}`},
		{"dependencies", `{"type": "object", "dependentRequired": {` + list(40, func(i int) string { return fmt.Sprintf(`"a%d": ["b%d"]`, i, i) }) + `}}`},
		{"nested negation", nested},
		{"constants beside a pattern", `{"pattern": "(a|b)*a.{6}", "enum": [` + list(20000, func(i int) string { return fmt.Sprintf(`"%daabbaab"`, i) }) + `]}`},
		{"if within then", strings.Repeat(`{"if": {"required": ["a"]}, "then": `, 60) + `{}` + strings.Repeat(`}`, 60)},
		{"names by alternatives", `{"propertyNames": {"anyOf": [` + list(300, func(i int) string { return fmt.Sprintf(`{"pattern": "a.{%d}$"}`, i) }) + `]}, "patternProperties": {"b": {}}}`},
		{"numbers of members", `{"type": "object", "minProperties": 60, "properties": {` + list(2000, func(i int) string { return fmt.Sprintf(`"p%d": {}`, i) }) + `}}`},
		{"references in all directions", `{"$ref": "#/$defs/d0", "$defs": {` + list(60, func(i int) string {
			return fmt.Sprintf(`"d%d": {"oneOf": [%s]}`, i, list(8, func(j int) string {
				return fmt.Sprintf(`{"properties": {"x%d": {"not": {"$ref": "#/$defs/d%d"}}}}`, j, (i*7+j*5+1)%60)
			}))
		}) + `}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begin := time.Now()
			_, err := Schema(json.RawMessage(c.schema), false)
			took := time.Since(begin)
			runtime.ReadMemStats(&after)
			t.Logf("%v, %d MB allocated: %.200v", took, (after.TotalAlloc-before.TotalAlloc)>>20, err)
			if took > 20*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}
