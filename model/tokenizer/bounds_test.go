package tokenizer

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// repeated returns n times a part of a JSON list.
func repeated(part string, n int) string { return strings.Repeat(part+",", n-1) + part }

// TestExpansionIsBounded loads files that ask for far more than they hold, and
// encodes with those that only show it then.
func TestExpansionIsBounded(t *testing.T) {
	const double = `{"type":"Replace","pattern":{"String":"a"},"content":"aa"}`
	regex := strings.Replace(double, "String", "Regex", 1)
	normalizer := func(s string) string { return change(`"normalizer":null`, `"normalizer":`+s) }
	decoder := func(s string) string { return change(`"decoder":null`, `"decoder":`+s) }
	post := func(s string) string { return change(`"post_processor":null`, `"post_processor":`+s) }
	template := func(parts int, ids string) string {
		return `{"type":"TemplateProcessing","single":[` + repeated(`{"SpecialToken":{"id":"<x>","type_id":0}}`, parts) +
			`,{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<x>":{"id":"<x>","ids":[` + ids + `],"tokens":["<x>"]}}}`
	}
	for _, c := range []struct{ name, json, want string }{
		{"doubling normalizer", normalizer(`{"type":"Sequence","normalizers":[` + repeated(double, 60) + `]}`),
			"normalizer: normalizers[7]: Replace: the text grows too large"},
		{"doubling normalizer by regex", normalizer(`{"type":"Sequence","normalizers":[` + repeated(regex, 60) + `]}`),
			"normalizer: normalizers[7]: Replace: the text grows too large"},
		{"doubling normalizer and an added token", strings.Replace(normalizer(`{"type":"Sequence","normalizers":[`+repeated(double, 60)+`]}`),
			`"content":"<eos>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false`,
			`"content":"a","single_word":false,"lstrip":false,"rstrip":false,"normalized":true`, 1), "id 1"},
		{"one step for each byte", normalizer(`{"type":"Replace","pattern":{"String":"a"},"content":"` + strings.Repeat("b", 2<<20) + `"}`),
			"normalizer: Replace: the text grows too large"},
		{"empty matches", normalizer(`{"type":"Replace","pattern":{"Regex":""},"content":"` + strings.Repeat("b", 1<<20) + `"}`),
			"normalizer: Replace: the text grows too large"},
		{"long Prepend", normalizer(`{"type":"Prepend","prepend":"` + strings.Repeat("a", 8<<20) + `"}`), "Prepend: prepend of 8388608 bytes"},
		{"many steps", normalizer(`{"type":"Sequence","normalizers":[` + repeated(`{"type":"NFC"}`, 10_000) + `]}`), "Sequence: more than 64 steps"},
		{"many steps in sequences", normalizer(`{"type":"Sequence","normalizers":[` +
			repeated(`{"type":"Sequence","normalizers":[`+repeated(`{"type":"NFC"}`, 60)+`]}`, 60) + `]}`), "more than 64 steps"},
		{"many pre-tokenizers", change(`{"type":"WhitespaceSplit"}`, `{"type":"Sequence","pretokenizers":[`+repeated(`{"type":"WhitespaceSplit"}`, 10_000)+`]}`),
			"Sequence: more than 64 steps"},
		{"doubling decoder", strings.Replace(decoder(`{"type":"Sequence","decoders":[`+repeated(double, 60)+`]}`), `"the":5`, `"the":5,"a":6`, 1),
			"decoder: step 20: Replace: the text grows too large"},
		{"many decoders", decoder(`{"type":"Sequence","decoders":[` + repeated(double, 10_000) + `]}`), "more than 64 steps"},
		{"long template", post(template(100_000, "0")), "single[4096]: more than 4096 ids"},
		{"template of a long token", post(template(2, repeated("0", 3000))), "single[1]: more than 4096 ids"},
		{"many templates", post(`{"type":"Sequence","processors":[` + repeated(template(1, repeated("0", 1000)), 50) + `]}`), "processors[4]: more than 4096 ids"},
		{"repetitions in a pattern", change(`{"type":"WhitespaceSplit"}`, `{"type":"Split","pattern":{"Regex":"((((a{1,999}){1,999}){1,999}){1,999})"},"behavior":"Isolated","invert":false}`),
			"more than 50000 instructions"},
		{"groups in a pattern", change(`{"type":"WhitespaceSplit"}`, `{"type":"Split","pattern":{"Regex":"`+strings.Repeat("(", 30_000)+`"},"behavior":"Isolated","invert":false}`),
			"nested more than 100 deep"},
		{"pattern that looks ahead from everywhere", change(`{"type":"WhitespaceSplit"}`, `{"type":"Split","pattern":{"Regex":"(?=.*a)[xa]z"},"behavior":"Isolated","invert":false}`),
			"too many steps"},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := time.Now()
			tok, err := Load([]byte(c.json), nil)
			if err == nil {
				_, err = tok.Encode(strings.Repeat("xa", 10_000), true)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one that says %s", shorten(fmt.Append(nil, err)), c.want)
			}
			if d := time.Since(start); d > 10*time.Second { // these take minutes, or all memory, where nothing bounds them
				t.Errorf("took %v", d)
			}
		})
	}
}

// TestNormalWork has what real files do pass the bounds.
func TestNormalWork(t *testing.T) {
	tok := fixture(t, "llama2") // Prepend, and Replace of one byte by three
	text := strings.Repeat(" ", 1<<20)
	if _, err := tok.Encode(text, false); err != nil {
		t.Error(err)
	}
	if _, err := tok.Encode(strings.Repeat("<tag> ", 1<<18), false); err != nil {
		t.Error(err)
	}
}
