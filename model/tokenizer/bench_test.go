package tokenizer

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/model/tokenizer/onig"
)

// englishText returns n bytes of English: the essays of the haystack, repeated.
func englishText(b *testing.B, n int) string {
	b.Helper()
	dataFile(b, "tokenizers", "strings.json") // skips without data
	files, err := filepath.Glob(filepath.Join(os.Getenv("GLIMPSE_DATA"), "haystack", "*.txt"))
	if err != nil || len(files) == 0 {
		b.Fatalf("no essays in GLIMPSE_DATA/haystack (%v)", err)
	}
	var text bytes.Buffer
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			b.Fatal(err)
		}
		text.Write(data)
	}
	return strings.ToValidUTF8(strings.Repeat(text.String(), n/text.Len()+1)[:n], "")
}

func BenchmarkEncode(b *testing.B) {
	for _, model := range []string{"llama3", "qwen", "mistral_v3"} {
		tok := realTokenizer(b, model)
		for _, mb := range []int{1, 10} {
			text := englishText(b, mb<<20)
			b.Run(fmt.Sprintf("model=%s/text=english/mb=%d", model, mb), func(b *testing.B) {
				benchmarkEncode(b, tok, text)
			})
		}
		letters := make([]byte, 1<<20)
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range letters {
			letters[i] = byte('a' + rng.IntN(26))
		}
		b.Run(fmt.Sprintf("model=%s/text=oneword/mb=1", model), func(b *testing.B) {
			benchmarkEncode(b, tok, string(letters))
		})
		b.Run(fmt.Sprintf("model=%s/text=a/mb=1", model), func(b *testing.B) {
			benchmarkEncode(b, tok, strings.Repeat("a", 1<<20))
		})
	}
}

func benchmarkEncode(b *testing.B, tok *Tokenizer, text string) {
	b.SetBytes(int64(len(text)))
	tokens := 0
	for b.Loop() {
		ids, err := tok.Encode(text, false)
		if err != nil {
			b.Fatal(err)
		}
		tokens += len(ids)
	}
	b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
}

func BenchmarkDecode(b *testing.B) {
	for _, model := range []string{"llama3", "mistral_v3"} {
		tok := realTokenizer(b, model)
		ids, err := tok.Encode(englishText(b, 1<<20), false)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("model="+model, func(b *testing.B) {
			for b.Loop() {
				if _, err := tok.Decode(ids, false); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*float64(len(ids))/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, model := range []string{"llama3", "qwen", "mistral_v3"} {
		data := dataFile(b, "tokenizers", model+".json")
		b.Run("model="+model, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if _, err := Load(data, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSplit runs the pre-tokenizer alone: patterns by their scanner, and by the
// engine that runs any pattern.
func BenchmarkSplit(b *testing.B) {
	text := englishText(b, 1<<20)
	for name, pattern := range map[string]string{"llama3": patternLlama3, "o200k": patternO200k, "tekken": patternTekken, "gpt2": patternGPT2} {
		re, err := onig.Compile(pattern)
		if err != nil {
			b.Fatal(err)
		}
		for by, s := range map[string]splitter{"scanner": patternSplit{splitPatterns[pattern]}, "engine": findSplit{find: re.Each, behavior: isolated}} {
			b.Run("pattern="+name+"/by="+by, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					if err := s.split(piece{text: text}, func(piece) error { return nil }); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
