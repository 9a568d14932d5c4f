package tasks

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"glimpse/internal/regularfile"
)

// The text is that of RULER, scripts/data/synthetic/constants.py.
const (
	qaTemplate = "Answer the question based on the given documents. Only give me the answer and do not output any other words.\n\nThe following are given documents.\n\n%s\n\nAnswer the question based on the given documents. Only give me the answer and do not output any other words.\n\nQuestion: %s"
	qaBegin    = " Answer:"
)

// maxLibrary bounds what is read of questions and documents; HotpotQA has 47 MB.
const maxLibrary = 256 << 20

// library is questions with the documents that they are about.
type library struct {
	documents []string // sorted, each once
	questions []question
}

type question struct {
	text    string
	answers []string
	about   []int // the documents that the answer stands in
	near    []int // others of the same article, which distract more than any
}

// indexed gives each document its place among all of them.
func (l *library) indexed(texts []string) map[string]int {
	l.documents = slices.Compact(slices.Sorted(slices.Values(texts)))
	at := make(map[string]int, len(l.documents))
	for i, text := range l.documents {
		at[text] = i
	}
	return at
}

// readSQuAD reads SQuAD 2.0 (Rajpurkar et al. 2018, arXiv:1806.03822) as its authors publish
// it. Questions without an answer are left out.
func readSQuAD(path string) (*library, error) {
	var file struct {
		Data []struct {
			Paragraphs []struct {
				Context string
				QAs     []struct {
					Question   string
					Impossible bool `json:"is_impossible"`
					Answers    []struct{ Text string }
				}
			}
		}
	}
	if err := regularfile.JSON(path, maxLibrary, &file); err != nil {
		return nil, err
	}
	var texts []string
	for _, article := range file.Data {
		for _, p := range article.Paragraphs {
			texts = append(texts, p.Context)
		}
	}
	l := new(library)
	at := l.indexed(texts)
	for _, article := range file.Data {
		for _, p := range article.Paragraphs {
			var near []int
			for _, other := range article.Paragraphs {
				if other.Context != p.Context {
					near = append(near, at[other.Context])
				}
			}
			for _, qa := range p.QAs {
				q := question{text: qa.Question, about: []int{at[p.Context]}, near: near}
				for _, a := range qa.Answers {
					q.answers = append(q.answers, a.Text)
				}
				if !qa.Impossible && len(q.answers) > 0 {
					l.questions = append(l.questions, q)
				}
			}
		}
	}
	if len(l.questions) == 0 {
		return nil, fmt.Errorf("%s: %w; want SQuAD's data, paragraphs and qas", path, errNoQuestions)
	}
	return l, nil
}

// readHotpotQA reads HotpotQA (Yang et al. 2018, arXiv:1809.09600) with distractors as its
// authors publish it: all ten documents of a question stay with it.
func readHotpotQA(path string) (*library, error) {
	var file []struct {
		Question, Answer string
		Context          []hotpotDocument
	}
	if err := regularfile.JSON(path, maxLibrary, &file); err != nil {
		return nil, err
	}
	var texts []string
	for _, q := range file {
		for _, d := range q.Context {
			texts = append(texts, string(d))
		}
	}
	l := new(library)
	at := l.indexed(texts)
	for _, entry := range file {
		q := question{text: entry.Question, answers: []string{entry.Answer}}
		for _, d := range entry.Context {
			q.about = append(q.about, at[string(d)])
		}
		if entry.Question != "" && entry.Answer != "" && len(q.about) > 0 {
			l.questions = append(l.questions, q)
		}
	}
	if len(l.questions) == 0 {
		return nil, fmt.Errorf("%s: %w; want a list with question, answer and context", path, errNoQuestions)
	}
	return l, nil
}

// hotpotDocument is a title and, below it, its sentences.
type hotpotDocument string

func (d *hotpotDocument) UnmarshalJSON(data []byte) error {
	var parts []json.RawMessage
	var title string
	var sentences []string
	if err := json.Unmarshal(data, &parts); err != nil || len(parts) != 2 {
		return fmt.Errorf("a document of the context: got %.60s, want a title and a list of sentences", data)
	}
	if err := errors.Join(json.Unmarshal(parts[0], &title), json.Unmarshal(parts[1], &sentences)); err != nil {
		return fmt.Errorf("a document of the context: %w", err)
	}
	*d = hotpotDocument(title + "\n" + strings.Join(sentences, ""))
	return nil
}

// makeQA asks the questions in the order of the file. Other documents come from the same
// article and then any, as RULER takes them. They are the units; fillers are the first words of one more.
func makeQA(r *ruler, rng *rand.Rand, _, index int) (draft, error) {
	q, documents, seed := r.library.questions[index], r.library.documents, rng.Uint64()
	taken := make(map[int]bool)
	for _, i := range q.about {
		taken[i] = true
	}
	var order []int // other documents, in the order in which they are taken
	add := func(i int) {
		if !taken[i] {
			taken[i] = true
			order = append(order, i)
		}
	}
	for _, i := range rng.Perm(len(q.near)) {
		add(q.near[i])
	}
	for _, i := range rng.Perm(len(documents)) {
		add(i)
	}
	return draft{variants: 8, answers: q.answers, text: func(units, fillers, variant int) (user, begin string, err error) {
		if units > len(order) {
			return "", "", errNoMore
		}
		list := shuffled{seed: seed}
		for _, i := range slices.Concat(q.about, order[:units]) {
			list.addWord(documents[i], i)
		}
		if fillers > 0 {
			// The words of the next document, or of a made one where there is none; some more
			// words, which are one token each in most vocabularies, end it.
			var next []string
			if units < len(order) {
				next = strings.Fields(documents[order[units]])
			}
			next = append(next, filler(max(0, fillers-len(next)), 0)...)
			list.addWord(strings.Join(append(next[:fillers:fillers], filler(variant, 0)...), " "), -1)
		}
		texts := list.words()
		for i := range texts {
			texts[i] = fmt.Sprintf("Document %d:\n%s", i+1, texts[i])
		}
		return fmt.Sprintf(qaTemplate, strings.Join(texts, "\n\n"), q.text), qaBegin, nil
	}}, nil
}
