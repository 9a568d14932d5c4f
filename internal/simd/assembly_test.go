package simd

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The assembler accepts the registers and forms of AVX-512 anywhere. A function for
// AVX2 that uses them runs here and is an illegal instruction elsewhere.
func TestAVX2NeedsNoAVX512(t *testing.T) {
	beyond := regexp.MustCompile(`\b([XY](1[6-9]|2\d|3[01])|Z\d+|K[0-7])\b|\.Z\b`)
	functions := 0
	for _, file := range []string{"product_amd64.s", "vector_amd64.s", "blocks_amd64.s"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := ""
		for i, line := range strings.Split(string(text), "\n") {
			if rest, ok := strings.CutPrefix(line, "TEXT ·"); ok {
				name, _, _ = strings.Cut(rest, "(")
				functions++
			}
			if strings.HasPrefix(line, "\t") && !strings.Contains(name, "AVX512") && beyond.MatchString(line) {
				t.Errorf("%s:%d: %s:%s", file, i+1, name, line)
			}
		}
	}
	if functions < 40 {
		t.Errorf("found %d functions: the files are not read", functions)
	}
}
