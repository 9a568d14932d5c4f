package clitest

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

var row = regexp.MustCompile("^\\| `([^`?]+)(\\?)?` \\|")

// CheckDocument is an error unless the printed object has the values of its section, and no others.
//
// The document has a section "## SCHEMA" for each kind of object, and in it one row of a
// table for each value: its path in backquotes, and what it is. "rows[].policy" is the value
// policy of every element of the list rows; "rows[].measures.*" stands for all values there.
// What may be missing has a question mark behind its path.
func CheckDocument(document string, printed []byte) error {
	var object map[string]any
	if err := json.Unmarshal(printed, &object); err != nil {
		return fmt.Errorf("no JSON object: %w", err)
	}
	schema, _ := object["schema"].(string)
	_, section, found := strings.Cut(document, "\n## "+schema+"\n")
	if schema == "" || !found {
		return fmt.Errorf("schema %q has no section", schema)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	optional := make(map[string]bool)
	for line := range strings.Lines(section) {
		if m := row.FindStringSubmatch(line); m != nil {
			optional[m[1]] = m[2] != ""
		}
	}
	got := make(map[string]bool)
	walk(object, "", got)
	for _, path := range slices.Sorted(maps.Keys(got)) {
		if _, ok := optional[path]; !ok && !under(path, optional) {
			return fmt.Errorf("%s: %s is printed and not documented", schema, path)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(optional)) {
		if !optional[path] && !got[path] && !strings.HasSuffix(path, ".*") {
			return fmt.Errorf("%s: %s is documented and not printed", schema, path)
		}
	}
	return nil
}

// under tells whether a documented path ends with .* above the path.
func under(path string, documented map[string]bool) bool {
	for d := range documented {
		if above, ok := strings.CutSuffix(d, "*"); ok && strings.HasPrefix(path, above) {
			return true
		}
	}
	return false
}

// walk notes the paths of all values in v. Those of a list's elements are the same.
func walk(v any, path string, out map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for key, x := range v {
			walk(x, strings.TrimPrefix(path+"."+key, "."), out)
		}
	case []any:
		if len(v) == 0 {
			out[path+"[]"] = true
		}
		for _, x := range v {
			walk(x, path+"[]", out)
		}
	default:
		out[path] = true
	}
}
