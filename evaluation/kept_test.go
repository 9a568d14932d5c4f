package evaluation

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestKeptDigit: only none and all of the heads are the ends, whatever their number.
func TestKeptDigit(t *testing.T) {
	last := KeptDigits[len(KeptDigits)-1]
	for _, heads := range []int{1, 2, 8, 61, 62, 256, 1024} {
		before := byte(0)
		for n := range heads + 1 {
			d := keptDigit(n, heads)
			if (n == 0) != (d == '0') || (n == heads) != (d == last) || d < before {
				t.Fatalf("%d of %d heads: digit %c after %c", n, heads, d, before)
			}
			before = d
		}
	}
	if d := keptDigit(4, 8); d != KeptDigits[31] {
		t.Errorf("half: %c", d)
	}
}

// keptLine is one of KeptFile, with one thing changed.
func keptLine(t testing.TB, old, new string) []byte {
	line, err := json.Marshal(Kept{Schema: KeptSchema, Model: "m", Task: "t", Layers: 1, KVHeads: 2, Tokens: []string{"a", "b"},
		Cells: []KeptCell{{Policy: "snapkv", Budget: "8", Shares: "0z"}}})
	if err != nil || !strings.Contains(string(line), old) {
		t.Fatalf("%s lacks %s: %v", line, old, err)
	}
	return []byte(strings.Replace(string(line), old, new, 1))
}

var badKept = [][2]string{{`"0z"`, `"0"`}, {`"0z"`, `"0~"`}, {`"0z"`, `"0é"`}, {KeptSchema, "other/1"}, {`"layers":1`, `"layers":0`}, {`"index":0`, `"index":-1`}, {`"cells"`, `"cell"`}, {`["a","b"]`, `[]`}}

func TestDecodeKept(t *testing.T) {
	if k, err := DecodeKept(keptLine(t, "", "")); err != nil || k.Cells[0].Label() != "snapkv" || k.Tokens[1] != "b" {
		t.Errorf("%+v, %v", k, err)
	}
	for _, change := range badKept {
		if _, err := DecodeKept(keptLine(t, change[0], change[1])); err == nil {
			t.Errorf("%s in the place of %s is taken", change[1], change[0])
		}
	}
}

func FuzzDecodeKept(f *testing.F) {
	f.Add(keptLine(f, "", ""))
	for _, change := range badKept {
		f.Add(keptLine(f, change[0], change[1]))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		k, err := DecodeKept(line)
		if err != nil {
			return
		}
		for _, c := range k.Cells {
			if len(c.Shares) != len(k.Tokens) {
				t.Fatalf("%d digits for %d tokens", len(c.Shares), len(k.Tokens))
			}
			for _, d := range c.Shares {
				if !strings.ContainsRune(KeptDigits, d) {
					t.Fatalf("digit %q is taken", d)
				}
			}
		}
	})
}
