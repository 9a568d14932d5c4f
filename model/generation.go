package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"

	"glimpse/internal/listing"
)

// Generation is what a model says about how it wants to be sampled, in
// generation_config.json or, without one, in config.json.
type Generation struct {
	// Sample tells that tokens are drawn and not the best ones taken.
	Sample bool
	// These are nil where they are not given.
	Temperature, TopP, MinP *float64
	TopK                    *int
	Processors              Processors
	// Ignored are keys that would change responses, and that are not followed.
	Ignored []string

	file string
	err  error // what is wrong with it, for whoever asks for the model's sampling
}

// defaultTopK is what transformers takes where a file samples and does not say.
const defaultTopK = 50

// neutral are keys that change no response, or that flags answer, and for others the
// values that change none; null never does.
var neutral = map[string]string{
	"bos_token_id": "", "eos_token_id": "", "pad_token_id": "", "decoder_start_token_id": "",
	"max_length": "", "max_new_tokens": "", // --max-new says it
	"use_cache": "", "cache_implementation": "", "cache_config": "", "return_legacy_cache": "", "prefill_chunk_size": "",
	"compile_config": "", "disable_compile": "", "low_memory": "", "_from_model_config": "", "_commit_hash": "", "transformers_version": "",
	"output_attentions": "", "output_hidden_states": "", "output_scores": "", "output_logits": "", "return_dict_in_generate": "",
	"renormalize_logits": "", "remove_invalid_values": "", // logits that are not finite are an error
	"is_assistant": "", "num_assistant_tokens": "", "num_assistant_tokens_schedule": "", "assistant_confidence_threshold": "",
	"prompt_lookup_num_tokens": "", "max_matching_ngram_size": "", "assistant_early_exit": "", "assistant_lookbehind": "", "target_lookbehind": "",
	"length_penalty": "", "early_stopping": "", // of beams
	"num_beams": "1", "num_beam_groups": "1", "num_return_sequences": "1", "diversity_penalty": "0",
	"typical_p": "1", "epsilon_cutoff": "0", "eta_cutoff": "0", "encoder_repetition_penalty": "1", "encoder_no_repeat_ngram_size": "0",
	"guidance_scale": "1", "penalty_alpha": "0", "token_healing": "false",
}

// effective are further keys that change responses, whose null does not.
var effective = []string{
	"max_time", "stop_strings", "sequence_bias", "forced_bos_token_id", "forced_eos_token_id", "exponential_decay_length_penalty",
	"watermarking_config", "dola_layers", "constraints", "force_words_ids",
}

// readGeneration reads the file, in which everything but its syntax is judged by
// whoever asks for it.
func readGeneration(folder fs.FS, c *Config) (*Generation, error) {
	g := &Generation{file: "generation_config.json"}
	raw, err := readSmall(folder, g.file)
	whole := err == nil
	if errors.Is(err, fs.ErrNotExist) {
		g.file = "config.json"
		raw, err = readSmall(folder, g.file)
	}
	if err != nil {
		return nil, err
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(raw, &keys); err != nil {
		return nil, fmt.Errorf("%s: %w", g.file, err)
	}
	g.err = g.readKeys(keys, c, whole)
	return g, nil
}

// readKeys takes the keys; all are generation's where the whole file is.
func (g *Generation) readKeys(keys map[string]json.RawMessage, c *Config, whole bool) error {
	var minNew *int
	p := &g.Processors
	followed := map[string]any{
		"do_sample": &g.Sample, "temperature": &g.Temperature, "top_k": &g.TopK, "top_p": &g.TopP, "min_p": &g.MinP,
		"repetition_penalty": &p.RepetitionPenalty, "no_repeat_ngram_size": &p.NoRepeatNGram, "bad_words_ids": &p.BadWords,
		"min_length": &p.MinLength, "min_new_tokens": &minNew, "suppress_tokens": &p.Suppress, "begin_suppress_tokens": &p.BeginSuppress,
	}
	var ignored []string
	for key, raw := range keys {
		if !given(raw) {
			if key == "top_k" { // null is all, where an absent one is defaultTopK
				g.TopK = new(int)
			}
			continue
		}
		if to, ok := followed[key]; ok {
			if err := json.Unmarshal(raw, to); err != nil {
				return fmt.Errorf("%s: %s: got %.60s, want %s", g.file, key, compact(raw), wants(to))
			}
			continue
		}
		value, known := neutral[key]
		if !known && !whole && !slices.Contains(effective, key) || known && (value == "" || means(raw, value)) {
			continue
		}
		ignored = append(ignored, fmt.Sprintf("%.60q %.60s", key, compact(raw)))
	}
	slices.Sort(ignored)
	if rest := len(ignored) - listing.Most; rest > 0 {
		ignored = append(ignored[:listing.Most], fmt.Sprintf("and %d more", rest))
	}
	g.Ignored = ignored
	if minNew != nil { // which then counts, and not min_length
		p.MinNew, p.MinLength = *minNew, 0
	}
	if p.MinNew > 0 || p.MinLength > 0 || len(p.BadWords) > 0 {
		p.End = c.EOS
	}
	return g.checkValues(keys)
}

// checkValues wants what transformers wants.
func (g *Generation) checkValues(keys map[string]json.RawMessage) error {
	for _, n := range []struct {
		key   string
		value *float64
		ok    func(v float64) bool
		want  string
	}{
		{"temperature", g.Temperature, func(v float64) bool { return v > 0 || v == 0 && !g.Sample }, "a positive number"},
		{"top_p", g.TopP, func(v float64) bool { return v >= 0 && v <= 1 }, "0 to 1"},
		{"min_p", g.MinP, func(v float64) bool { return v >= 0 && v <= 1 }, "0 to 1"},
	} {
		if n.value != nil && !n.ok(*n.value) {
			return fmt.Errorf("%s: %s: got %v, want %s", g.file, n.key, *n.value, n.want)
		}
	}
	if g.TopK != nil && *g.TopK < 0 {
		return fmt.Errorf("%s: top_k: got %d, want at least 0", g.file, *g.TopK)
	}
	if given(keys["repetition_penalty"]) && !(g.Processors.RepetitionPenalty > 0) {
		return fmt.Errorf("%s: repetition_penalty: got %v, want a positive number", g.file, g.Processors.RepetitionPenalty)
	}
	if err := g.Processors.Validate(); err != nil {
		return fmt.Errorf("%s: %w", g.file, err)
	}
	return nil
}

// wants describes what a key holds.
func wants(to any) string {
	switch to.(type) {
	case *bool:
		return "true or false"
	case *float64, **float64:
		return "a number"
	case *int, **int:
		return "a whole number"
	case *[]int32:
		return "a list of token ids"
	}
	return "a list of lists of token ids"
}

func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return "?"
	}
	return b.String()
}

// means tells that raw is the value, however a number is written.
func means(raw json.RawMessage, value string) bool {
	var a, b float64
	if json.Unmarshal(raw, &a) != nil || json.Unmarshal([]byte(value), &b) != nil {
		return string(raw) == value
	}
	return math.Abs(a-b) == 0
}
