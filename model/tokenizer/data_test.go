package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Load makes a tokenizer from the contents of tokenizer.json and of tokenizer_config.json, which may be nil.
func Load(data, config []byte) (*Tokenizer, error) {
	return files{tokenizer: data, config: config}.loadFiles()
}

// dataFile reads a file below the folder that GLIMPSE_DATA names. Without the
// variable the test is skipped; with it a missing file is a failure.
func dataFile(t testing.TB, elem ...string) []byte {
	t.Helper()
	root := os.Getenv("GLIMPSE_DATA")
	if root == "" {
		t.Skip("GLIMPSE_DATA does not name a data folder: the real tokenizers are not tested")
	}
	data, err := os.ReadFile(filepath.Join(append([]string{root}, elem...)...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func realTokenizer(t testing.TB, name string) *Tokenizer {
	t.Helper()
	tok, err := Load(dataFile(t, "tokenizers", name+".json"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestRealTokenizers(t *testing.T) {
	for _, name := range []string{"llama3", "qwen", "mistral_v3"} {
		t.Run(name, func(t *testing.T) {
			var in struct{ Strings []string }
			var want []struct {
				IDs []int32
				Dec string
			}
			if err := json.Unmarshal(dataFile(t, "tokenizers", "strings.json"), &in); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(dataFile(t, "tokenizers", "ref_"+name+".json"), &want); err != nil {
				t.Fatal(err)
			}
			if len(in.Strings) != 157 || len(want) != 157 {
				t.Fatalf("%d strings and %d references, want 157", len(in.Strings), len(want))
			}
			tok := realTokenizer(t, name)
			for i, s := range in.Strings {
				got, err := tok.Encode(s, false)
				if err != nil {
					t.Errorf("string %d %q: %v", i, s, err)
					continue
				}
				if !slices.Equal(got, want[i].IDs) {
					t.Errorf("string %d %q:\n got %v\nwant %v", i, s, got, want[i].IDs)
				}
				checkDecode(t, tok, want[i].IDs, false, want[i].Dec)
			}
		})
	}
}

// checkDecode checks Decode, and that a stream gives the same in whole
// characters.
func checkDecode(t *testing.T, tok *Tokenizer, ids []int32, skipSpecial bool, want string) {
	t.Helper()
	got, err := tok.Decode(ids, skipSpecial)
	if err != nil {
		t.Errorf("decode %v: %v", ids, err)
		return
	}
	if got != want {
		t.Errorf("decode %v: got %q, want %q", ids, got, want)
	}
	var b strings.Builder
	s := tok.NewStream(skipSpecial)
	for _, id := range ids {
		part := s.Push(id)
		if firstInvalid(part) != len(part) {
			t.Errorf("stream of %v: %q is not whole characters", ids, part)
		}
		b.WriteString(part)
	}
	b.WriteString(s.Flush())
	if b.String() != got {
		t.Errorf("stream of %v: got %q, Decode gives %q", ids, b.String(), got)
	}
}

// TestLlamaCppVectors runs llama.cpp's own test vectors: inputs between marker
// lines, ids one line each.
func TestLlamaCppVectors(t *testing.T) {
	for _, c := range []struct{ model, vectors string }{{"llama3", "llama-bpe"}, {"qwen", "qwen2"}} {
		t.Run(c.vectors, func(t *testing.T) {
			inputs := strings.Split(string(dataFile(t, "tokenizers", c.vectors+".inp")), "\n__ggml_vocab_test__\n")
			lines := strings.Split(strings.TrimSuffix(string(dataFile(t, "tokenizers", c.vectors+".out")), "\n"), "\n")
			tok := realTokenizer(t, c.model)
			if len(inputs) < 40 || len(inputs) < len(lines) {
				t.Fatalf("%d inputs for %d outputs", len(inputs), len(lines))
			}
			for i, line := range lines {
				var want []int32
				for _, f := range strings.Fields(line) {
					id, err := strconv.Atoi(f)
					if err != nil {
						t.Fatalf("output %d: %v", i, err)
					}
					want = append(want, int32(id))
				}
				got, err := tok.Encode(inputs[i], false)
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("input %d %q: got %v, %v; want %v", i, inputs[i], got, err, want)
				}
			}
		})
	}
}
