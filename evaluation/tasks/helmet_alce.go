package tasks

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"glimpse/datasets"
	"glimpse/evaluation"
	"glimpse/evaluation/scoring"
	"glimpse/internal/regularfile"
)

// Answers with citations (ALCE, Gao et al. 2023, arXiv:2305.14627). What is answered is
// scored; whether the cited documents support it takes an entailment model of 11 billion
// parameters, and is not.

// alcePrompt is HELMET's prompts/NAME_revised.json.
type alcePrompt struct {
	Instruction string
	DemoPrompt  string `json:"demo_prompt"`
	DocPrompt   string `json:"doc_prompt"`
	Demos       []struct {
		Question, Answer string
		Docs             []alceDoc
	}
}

type alceDoc struct{ Title, Text string }

// readALCEPrompt looks for the prompt beside the data and in HELMET's folder prompts.
func readALCEPrompt(dir, name string) (p alcePrompt, err error) {
	file := strings.TrimPrefix(name, "alce_") + "_revised.json"
	for _, at := range []string{".", "prompts", "../prompts", "../../prompts"} {
		path := filepath.Join(dir, at, file)
		err := regularfile.JSON(path, maxLibrary, &p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return p, err
		}
		if p.Instruction == "" || p.DocPrompt == "" {
			return p, fmt.Errorf("%s: want instruction and doc_prompt", path)
		}
		return p, nil
	}
	return p, fmt.Errorf("no %s in %s or in a folder prompts beside it: %w", file, dir, evaluation.ErrNoData)
}

// documents renders documents with their numbers.
func (p alcePrompt) documents(docs []alceDoc) string {
	out := make([]string, len(docs))
	for i, d := range docs {
		out[i] = fillTemplate(p.DocPrompt, map[string]string{"ID": fmt.Sprint(i + 1), "T": d.Title, "title": d.Title, "P": d.Text, "text": d.Text})
	}
	return strings.Join(out, "\n\n")
}

// readCitations reads a question with its documents (load_alce). HELMET draws the worked
// examples with Python's generator, this with its own, from the seed and the question.
func readCitations(h *helmet, row datasets.Row) (map[string]string, error) {
	r := reading{Row: row}
	values := r.texts("question")
	var docs []alceDoc
	if r.decode("docs", "a list of documents with title and text", &docs); r.err != nil {
		return nil, r.err
	}
	values["context"] = h.alce.documents(docs[:min(len(docs), h.docs)])
	values["instruction"], values["demos"] = h.alce.Instruction, ""
	if h.shots > len(h.alce.Demos) {
		return nil, fmt.Errorf("%d worked examples, want at most the prompt's %d", h.shots, len(h.alce.Demos))
	}
	for _, i := range drawn(h.setting.Seed, values["question"], len(h.alce.Demos), h.shots) {
		d := h.alce.Demos[i]
		values["demos"] += fillTemplate(h.alce.DemoPrompt, map[string]string{
			"instruction": h.alce.Instruction, "question": d.Question, "answer": d.Answer, "context": h.alce.documents(d.Docs),
		}) + "\n\n\n"
	}
	return values, nil
}

var (
	lineEnds = regexp.MustCompile("\n+")
	citation = regexp.MustCompile(` ?\[\p{Nd}+`)
)

// uncited is an answer on one line without citations (eval_alce.py; utils.py,
// remove_citations).
func uncited(text string) string {
	text = strings.ReplaceAll(lineEnds.ReplaceAllString(text, " "), "<|im_end|>", "")
	return strings.NewReplacer(" |", "", "]", "").Replace(citation.ReplaceAllString(text, ""))
}

// scoreASQA is the share of a question's short questions that have an answer in the
// text (compute_str_em).
func scoreASQA(_ *helmet, row datasets.Row) (func(string) (evaluation.Scores, error), error) {
	var pairs []struct {
		Answers []string `json:"short_answers"`
	}
	if err := row.Decode("qa_pairs", "a list of objects with short_answers", &pairs); err != nil {
		return nil, err
	}
	if len(pairs) == 0 {
		return nil, errors.New(`field "qa_pairs": none`)
	}
	present, err := scoring.Metrics.Lookup("substring_exact_match")
	if err != nil {
		return nil, err
	}
	return func(text string) (evaluation.Scores, error) {
		text = uncited(text)
		sum := 0.0
		for _, p := range pairs {
			score, err := present.Score(text, scoring.Reference{Answers: p.Answers})
			if err != nil {
				return nil, err
			}
			sum += score
		}
		return evaluation.Scores{"str_em": sum / float64(len(pairs))}, nil
	}, nil
}

// scoreQampari compares a list of answers with commas between; of each true one there are
// several spellings (compute_qampari_f1).
func scoreQampari(_ *helmet, row datasets.Row) (func(string) (evaluation.Scores, error), error) {
	var answers [][]string
	if err := row.Decode("answers", "a list of lists of spellings", &answers); err != nil {
		return nil, err
	}
	if len(answers) == 0 {
		return nil, errors.New(`field "answers": none`)
	}
	var all []string
	for _, spellings := range answers {
		for i := range spellings {
			spellings[i] = scoring.Normalized(spellings[i])
		}
		all = append(all, spellings...)
	}
	return func(text string) (evaluation.Scores, error) {
		list := strings.TrimRight(strings.TrimRight(strings.TrimRight(uncited(text), " \t\r\n"), "."), ",")
		var said []string
		right := 0
		for part := range strings.SplitSeq(list, ",") {
			if part = scoring.Normalized(part); part != "" {
				said = append(said, part)
				if slices.Contains(all, part) {
					right++
				}
			}
		}
		found := 0
		for _, spellings := range answers {
			if slices.ContainsFunc(spellings, func(a string) bool { return slices.Contains(said, a) }) {
				found++
			}
		}
		const enough = 5
		precision := float64(right) / float64(max(1, len(said)))
		recall := float64(min(enough, found)) / float64(min(enough, len(answers)))
		f1 := 0.0
		if precision+recall > 0 {
			f1 = 2 * precision * recall / (precision + recall)
		}
		return evaluation.Scores{"qampari_prec": precision, "qampari_rec_top5": recall, "qampari_f1_top5": f1}, nil
	}, nil
}
