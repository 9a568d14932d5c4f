package clitest

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	const document = "# All\n\n## tool.a/1\n\n| value | what |\n|:--|:--|\n| `schema` | |\n| `rows[].name` | |\n| `rows[].size?` | |\n| `rows[].more.*` | |\n\n## tool.b/1\n\n| `other` | |\n"
	for printed, want := range map[string]string{
		`{"schema": "tool.a/1", "rows": [{"name": "x", "size": 1}, {"name": "y"}]}`:   "",
		`{"schema": "tool.a/1", "rows": [{"name": "x", "more": {"p": 1, "q": [2]}}]}`: "",
		`{"schema": "tool.a/1", "rows": [{"name": "x", "other": 1}]}`:                 "rows[].other is printed and not documented",
		`{"schema": "tool.a/1", "rows": [{"size": 1}]}`:                               "rows[].name is documented and not printed",
		`{"schema": "tool.c/1"}`: `"tool.c/1" has no section`,
		`{"rows": []}`:           `"" has no section`,
		`[1]`:                    "no JSON object",
	} {
		err := CheckDocument(document, []byte(printed))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", printed, err, want)
		}
	}
}
