package model_test

import (
	"bytes"
	"strings"
	"testing"

	"glimpse/model"
	"glimpse/model/modeltest"
)

// TestSamplingChoice: flags go before the model's file, and that before the defaults.
func TestSamplingChoice(t *testing.T) {
	const greedy, model_ = model.SamplingGreedy, model.SamplingOfModel
	const llama = `{"do_sample": true, "temperature": 0.6, "top_p": 0.9}`
	const qwen = `{"do_sample": true, "temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.05, "repetition_penalty": 1.05}`
	for name, c := range map[string]struct {
		file   string
		choice model.SamplingChoice
		want   string // as Sampling.String has it, or with "error: " a part of the error
	}{
		"nothing":                       {`{}`, model.SamplingChoice{From: model_}, "greedy"},
		"no sampling":                   {`{"do_sample": false, "temperature": 0.6}`, model.SamplingChoice{From: model_}, "greedy"},
		"the file":                      {llama, model.SamplingChoice{From: model_}, "temperature 0.6, top_k 50, top_p 0.9"},
		"the whole file":                {qwen, model.SamplingChoice{From: model_}, "temperature 0.7, top_k 20, top_p 0.8, min_p 0.05, repetition_penalty 1.05"},
		"not the file":                  {qwen, model.SamplingChoice{From: greedy}, "greedy"},
		"greedy with the penalty":       {qwen, model.SamplingChoice{From: model_, Temperature: new(0.0)}, "greedy, repetition_penalty 1.05"},
		"flags before the file":         {qwen, model.SamplingChoice{From: model_, Temperature: new(1.5), TopK: new(0), TopP: new(1.0), MinP: new(0.0), RepetitionPenalty: new(1.0)}, "temperature 1.5"},
		"one flag before the file":      {qwen, model.SamplingChoice{From: model_, TopK: new(3)}, "temperature 0.7, top_k 3, top_p 0.8, min_p 0.05, repetition_penalty 1.05"},
		"temperature alone":             {`{}`, model.SamplingChoice{From: model_, Temperature: new(0.5)}, "temperature 0.5"},
		"top-k alone":                   {`{}`, model.SamplingChoice{From: model_, TopK: new(5)}, "temperature 1, top_k 5"},
		"top-p alone":                   {`{}`, model.SamplingChoice{From: greedy, TopP: new(0.5)}, "temperature 1, top_p 0.5"},
		"min-p alone":                   {`{}`, model.SamplingChoice{From: greedy, MinP: new(0.5)}, "temperature 1, min_p 0.5"},
		"top-k that is all":             {`{}`, model.SamplingChoice{From: model_, TopK: new(0), TopP: new(1.0)}, "greedy"},
		"top-k and the temperature":     {`{"temperature": 0.3}`, model.SamplingChoice{From: model_, TopK: new(5)}, "temperature 0.3, top_k 5"},
		"penalty":                       {`{}`, model.SamplingChoice{From: greedy, RepetitionPenalty: new(1.2)}, "greedy, repetition_penalty 1.2"},
		"processors":                    {`{"no_repeat_ngram_size": 3, "min_length": 4, "bad_words_ids": [[1], [2]], "suppress_tokens": [1], "begin_suppress_tokens": [2]}`, model.SamplingChoice{From: model_}, "greedy, no_repeat_ngram_size 3, min_length 4, 2 bad_words_ids, 1 suppress_tokens, 1 begin_suppress_tokens"},
		"greedy and top-k":              {`{}`, model.SamplingChoice{From: model_, Temperature: new(0.0), TopK: new(5)}, "error: temperature: got 0, which is greedy, and with it top-k"},
		"other word":                    {`{}`, model.SamplingChoice{From: "beam"}, `error: sampling: got "beam", want model or greedy`},
		"temperature below 0":           {`{}`, model.SamplingChoice{From: model_, Temperature: new(-1.0)}, "error: temperature: got -1"},
		"top-k below 0":                 {`{}`, model.SamplingChoice{From: model_, TopK: new(-1)}, "error: top-k: got -1"},
		"penalty 0":                     {`{}`, model.SamplingChoice{From: model_, RepetitionPenalty: new(0.0)}, "error: repetition-penalty: got 0"},
		"bad file":                      {`{"do_sample": true, "temperature": 0}`, model.SamplingChoice{From: model_}, "error: generation_config.json: temperature: got 0, want a positive number; --sampling greedy does without"},
		"bad file that is not asked":    {`{"do_sample": true, "temperature": 0}`, model.SamplingChoice{From: greedy}, "greedy"},
		"bad type":                      {`{"top_k": "many"}`, model.SamplingChoice{From: model_}, `error: generation_config.json: top_k: got "many", want a whole number`},
		"bad words":                     {`{"bad_words_ids": [[]]}`, model.SamplingChoice{From: model_}, "error: bad_words_ids: got an empty list"},
		"top-p of 0":                    {`{}`, model.SamplingChoice{From: greedy, TopP: new(0.0), Temperature: new(1.0)}, "temperature 1, top_k 1"},
		"top-p of 0 in the file":        {`{"do_sample": true, "top_p": 0}`, model.SamplingChoice{From: model_}, "temperature 1, top_k 1"},
		"top-p of 0 before the file":    {qwen, model.SamplingChoice{From: model_, TopP: new(0.0)}, "temperature 0.7, top_k 1, min_p 0.05, repetition_penalty 1.05"},
		"greedy and top-p of 0":         {`{}`, model.SamplingChoice{From: greedy, TopP: new(0.0), Temperature: new(0.0)}, "greedy"},
		"top_k of null is all":          {`{"do_sample": true, "top_k": null}`, model.SamplingChoice{From: model_}, "temperature 1"},
		"top_k of 0 is all":             {`{"do_sample": true, "top_k": 0}`, model.SamplingChoice{From: model_}, "temperature 1"},
		"null":                          {`{"do_sample": null, "temperature": null, "top_k": null, "bad_words_ids": null, "repetition_penalty": null}`, model.SamplingChoice{From: model_}, "greedy"},
		"a penalty of 0 in the file":    {`{"repetition_penalty": 0}`, model.SamplingChoice{From: model_}, "error: repetition_penalty: got 0, want a positive number"},
		"a top_p out of range, unasked": {`{"top_p": 2}`, model.SamplingChoice{From: model_}, "error: top_p: got 2, want 0 to 1"},
	} {
		f := newFolder(t, modeltest.Llama{})
		f.write("generation_config.json", []byte(c.file))
		m, err := f.open()
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.choice.Resolve(m)
		if part, ok := strings.CutPrefix(c.want, "error: "); ok {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %v, want %q", name, err, part)
			}
		} else if err != nil || s.String() != c.want {
			t.Errorf("%s: %q (%v), want %q", name, s, err, c.want)
		}
	}
}

// TestGenerationReport: what is not followed is said, and what changes nothing is not.
func TestGenerationReport(t *testing.T) {
	report := func(f folder) string {
		t.Helper()
		m, err := f.open()
		if err != nil {
			t.Fatal(err)
		}
		choice := model.SamplingChoice{From: model.SamplingOfModel}
		s, err := choice.Resolve(m)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		choice.Report(&out, m, s)
		return out.String()
	}
	for file, want := range map[string]string{
		`{"bos_token_id": 1, "eos_token_id": [1, 2], "pad_token_id": 0, "transformers_version": "4.57.6", "max_new_tokens": 2048, "use_cache": true,
			"num_beams": 1, "typical_p": 1.0, "guidance_scale": null, "stop_strings": null, "do_sample": false, "token_healing": false, "length_penalty": 2}`: "",
		`{"do_sample": true, "top_p": 0.9}`: "sampling with the model's generation_config.json: temperature 1, top_k 50, top_p 0.9\n",
		`{"num_beams": 4, "typical_p": 0.95, "stop_strings": ["\u001b[2J"], "chat_format": "chatml"}`: `sampling with the model's generation_config.json: greedy; ` +
			`not followed: "chat_format" "chatml", "num_beams" 4, "stop_strings" ["\u001b[2J"], "typical_p" 0.95` + "\n",
		`{"min_new_tokens": 3}`: "sampling with the model's generation_config.json: greedy, min_new_tokens 3\n",
	} {
		f := newFolder(t, modeltest.Llama{})
		f.write("generation_config.json", []byte(file))
		if got := report(f); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
	// Older models say it in config.json.
	f := newFolder(t, modeltest.Llama{}).config(map[string]any{"do_sample": true, "temperature": 0.9, "top_k": 7, "num_beams": 3, "some_key": 1})
	if got, want := report(f), "sampling with the model's config.json: temperature 0.9, top_k 7; not followed: \"num_beams\" 3\n"; got != want {
		t.Errorf("config.json: %q, want %q", got, want)
	}
}
