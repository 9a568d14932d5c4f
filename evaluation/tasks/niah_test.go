package tasks

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNIAH: prompts of every length and depth have exactly that length, and the needle
// stands once, where it should; the question asks for it and the answer is scored so.
func TestNIAH(t *testing.T) {
	for name, m := range textModels(t) {
		t.Run(name, func(t *testing.T) {
			lengths := "700,2048"
			if name == "bytes" {
				lengths = "3000,9000"
			}
			s := setting(t, m, "niah", "lengths="+lengths, "depths=5")
			if root := os.Getenv("GLIMPSE_DATA"); root != "" && name == "qwen" {
				s.Data = filepath.Join(root, "haystack")
			}
			samples, all := makeAll(t, "niah", "", s)
			if len(all) != 2*5*2 || samples.Count != 20 || samples.Metric != niahContains {
				t.Fatalf("%d samples, Count %d, metric %s", len(all), samples.Count, samples.Metric)
			}
			for _, a := range all {
				if a.err != nil {
					t.Fatalf("%s: %v", a.id, a.err)
				}
				ids, text := promptText(t, m, a.sample)
				var length int
				var depth float64
				fmt.Sscan(a.sample.Groups[0].Value+" "+a.sample.Groups[1].Value, &length, &depth)
				if len(ids) != length {
					t.Errorf("%s: %d tokens", a.id, len(ids))
				}
				from, rest, ok := strings.Cut(text, "One of the special magic numbers for ")
				key, rest, ok2 := strings.Cut(rest, " is: ")
				value, after, ok3 := strings.Cut(rest, ". ")
				if depth == 1 {
					value, after, ok3 = strings.Cut(rest, ".\n\n")
				}
				if !ok || !ok2 || !ok3 || strings.Contains(after, "One of the special magic") || !strings.Contains(after, "magic number for "+key+" mentioned") {
					t.Fatalf("%s: needle %q is %q", a.id, key, value)
				}
				if at := float64(len(from)) / float64(len(from)+len(after)); math.Abs(at-depth) > 0.12 || depth == 0 && at > 0.12 {
					t.Errorf("%s: the needle stands at %.2f", a.id, at)
				}
				if scoreOf(t, a.sample, niahContains, "It is "+value+", I think") != 1 || scoreOf(t, a.sample, niahContains, value[:6]) != 0 {
					t.Errorf("%s: scores", a.id)
				}
			}
		})
	}
}

// TestNIAHNeedles: needles of one's own, and the scorer that counts words.
func TestNIAHNeedles(t *testing.T) {
	m := byteModel(t)
	s := setting(t, m, "niah", "lengths=3000", "depths=0.5", "needle=sandwich", "scorer=rouge1")
	s.Data = writeFile(t, filepath.Join(t.TempDir(), "text.txt"), strings.Repeat("Some words of a haystack that ends here. ", 50))
	_, all := makeAll(t, "niah", "", s)
	_, text := promptText(t, m, all[0].sample)
	if !strings.Contains(text, "haystack that ends here. The best thing to do in San Francisco is eat a sandwich") {
		t.Errorf("prompt %q", text)
	}
	// 10 words of 12 and of 11 are eat, a, sandwich, and, sit, in, a, park, on, sunny.
	if v := scoreOf(t, all[0].sample, niahROUGE, "Eat a sandwich, and sit in a park on sunny days!"); math.Abs(v-20.0/23) > 1e-12 {
		t.Errorf("ROUGE-1 %v, want 20/23", v)
	}
	s = setting(t, m, "niah", "lengths=3000", "depths=0", "needle=The key is under the mat.", "question=Where is the key?", "answer=under the mat")
	_, all = makeAll(t, "niah", "", s)
	if _, text := promptText(t, m, all[0].sample); !strings.Contains(text, "\n\nThe key is under the mat. ") || !strings.Contains(text, "\n\nWhere is the key? ") {
		t.Errorf("prompt %q", text)
	}
	for want, options := range map[string][]string{
		"a needle of your own wants question and answer": {"needle=x"},
		`option question or answer with needle "number"`: {"question=x"},
		`option scorer: got "bleu"`:                      {"scorer=bleu"},
		`option depths: got "2"`:                         {"depths=0.5,2"},
		`option lengths: got "-3"`:                       {"lengths=-3"},
	} {
		openError(t, "niah", "", setting(t, m, "niah", options...), want)
	}
}
