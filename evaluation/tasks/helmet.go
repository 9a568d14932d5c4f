package tasks

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"glimpse/datasets"
	"glimpse/evaluation"
	"glimpse/evaluation/scoring"
	"glimpse/internal/listing"
)

// helmetSet is one data set of HELMET.
type helmetSet struct {
	name, prompt, metric string
	maxNew               int
	// raw prompts do not go into the chat template (configs of HELMET: use_chat_template).
	raw  bool
	stop []string
	// parsed is what stands before an answer; the better of the whole answer and of the part that
	// follows it counts, or the latter alone.
	parsed     string
	parsedOnly bool
	// file is the path in HELMET's data folder for a length, train that of worked examples.
	file, train func(length int) string
	read        func(h *helmet, row datasets.Row) (map[string]string, error)
	score       func(h *helmet, row datasets.Row) (func(text string) (evaluation.Scores, error), error)
}

// helmet is one data set that is opened.
type helmet struct {
	helmetSet
	rater
	setting *evaluation.Setting
	shots   int
	docs    int            // of citations
	train   []datasets.Row // to take worked examples from
	alce    alcePrompt
}

// Prompts of HELMET's data.py.
const (
	helmetRAG = "Use the given documents to write a concise and short answer to the question. Write your answer in the following format:\nAnswer: [answer]\n\n" +
		"{demos}{context}\n\nQuestion: {question}\nAnswer:"
	helmetKV      = "{context}\n\nExtract the value corresponding to the specified key in the JSON object below.\n\n{demos}Key: {question}\nCorresponding value:"
	helmetICL     = "Use the provided mapping from the text to label to assign a label to the text. Only output \"label: {label}\" and nothing else. \n\n{context}\n\n{question}\nlabel:"
	helmetNeedle  = "A special magic {type_needle_v} is hidden within the following text. Make sure to memorize it. I will quiz you about the {type_needle_v} afterwards.\n{context}\nWhat is the special magic {type_needle_v} for {query} mentioned in the provided text?\nThe special magic {type_needle_v} for {query} mentioned in the provided text is"
	helmetNeedles = "Some special magic {type_needle_v} are hidden within the following text. Make sure to memorize it. I will quiz you about the {type_needle_v} afterwards.\n{context}\nWhat are all the special magic {type_needle_v} for {query} mentioned in the provided text?\nThe special magic {type_needle_v} for {query} mentioned in the provided text are"
	helmetStory   = "You are given a story, which can be either a novel or a movie script, and a question. Answer the question as concisely as you can, using a single phrase if possible.\n\n{demos}{context}\n\nQuestion: {question}\nAnswer:"
	helmetBook    = "You are given a story and a question. Answer the question as concisely as you can, using a single phrase if possible.\n\n{demos}{context}\n\nQuestion: {question}\n\nAnswer:"
	helmetCite    = "{demos}{instruction}\n\nQuestion: {question}\n\n{context}\n\nAnswer:"
)

// helmetLengths are the lengths of HELMET's files, with the numbers of documents, keys and
// cited documents that make such prompts (its configs).
var helmetLengths = map[int]struct{ documents, keys, cited int }{
	8192: {50, 105, 30}, 16384: {105, 220, 75}, 32768: {220, 440, 165}, 65536: {440, 900, 345}, 131072: {1000, 1800, 700},
}

func helmetSets() []helmetSet {
	var sets []helmetSet
	rag := func(name, pattern, train string) {
		sets = append(sets, helmetSet{
			name: name, prompt: helmetRAG, metric: "substring_exact_match", maxNew: 20, raw: true, stop: []string{"\n"}, parsed: "Answer:",
			file:  func(n int) string { return fmt.Sprintf(pattern, helmetLengths[n].documents) },
			train: func(int) string { return train }, read: readDocuments,
		})
	}
	rag("kilt_nq", "kilt/nq-dev-multikilt_1000_k%d_dep6", "kilt/nq-train-multikilt_1000_k3_dep6")
	rag("kilt_triviaqa", "kilt/triviaqa-dev-multikilt_1000_k%d_dep6", "kilt/triviaqa-train-multikilt_1000_k3_dep6")
	rag("kilt_hotpotqa", "kilt/hotpotqa-dev-multikilt_1000_k%d_dep3", "kilt/hotpotqa-train-multikilt_1000_k3_dep3")
	rag("kilt_popqa", "kilt/popqa_test_1000_k%d_dep6", "kilt/popqa_test_1000_k3_dep6")
	sets = append(sets, helmetSet{
		name: "json_kv", prompt: helmetKV, metric: "substring_exact_match", maxNew: 100, raw: true, parsed: "corresponding value:",
		file: func(n int) string { return fmt.Sprintf("json_kv/test_k%d_dep6", helmetLengths[n].keys) }, read: readKeys,
	})
	needle := func(name, folder, prompt string, maxNew int) {
		sets = append(sets, helmetSet{
			name: name, prompt: prompt, metric: "string_match_all", maxNew: maxNew, raw: true,
			file: func(n int) string { return fmt.Sprintf("ruler/%s/validation_%d", folder, n) },
			read: func(_ *helmet, row datasets.Row) (map[string]string, error) {
				return texts(row, "context", "type_needle_v", "query")
			},
		})
	}
	needle("ruler_niah_mk_2", "niah_multikey_2", helmetNeedle, 50)
	needle("ruler_niah_mk_3", "niah_multikey_3", helmetNeedle, 100)
	needle("ruler_niah_mv", "niah_multivalue", helmetNeedles, 50)
	for _, name := range []string{"icl_trec_coarse", "icl_trec_fine", "icl_banking77", "icl_clinic150", "icl_nlu"} {
		sets = append(sets, helmetSet{
			name: name, prompt: helmetICL, metric: "exact_match", maxNew: 20, raw: true, stop: []string{"\n"}, parsed: "label:", parsedOnly: true, read: readQuestion,
		})
	}
	sets = append(sets,
		helmetSet{name: "narrativeqa", prompt: helmetStory, metric: "helmet_f1", maxNew: 100, parsed: "Answer:", read: readQuestion},
		helmetSet{name: "infbench_qa_eng", prompt: helmetBook, metric: "rougeL_stem", maxNew: 10, parsed: "Answer:", read: readQuestion},
		helmetSet{name: "alce_asqa", prompt: helmetCite, metric: "str_em", maxNew: 300, read: readCitations, score: scoreASQA,
			file: func(int) string { return "alce/asqa_eval_gtr_top2000" }},
		helmetSet{name: "alce_qampari", prompt: helmetCite, metric: "qampari_rec_top5", maxNew: 300, read: readCitations, score: scoreQampari,
			file: func(int) string { return "alce/qampari_eval_gtr_top2000" }},
	)
	return sets
}

func init() {
	evaluation.Tasks.Add("helmet", evaluation.Task{
		Name:     "helmet",
		Doc:      "recall, retrieval-augmented answers, in-context learning, long documents and citations, from HELMET's files",
		Source:   "HELMET, Yen et al. 2024, arXiv:2410.02694; as in DapQ, appendix C.4",
		Data:     "HELMET's data folder, or a folder with NAME.jsonl or NAME.json; in-context learning and long documents have context, question and answer in their rows",
		Subtasks: listing.Map(helmetSets(), func(s helmetSet) string { return s.name }), NeedsData: true,
		Options: []evaluation.Option{
			{Name: "length", Default: "8192", Doc: "which of HELMET's files: 8192, 16384, 32768, 65536 or 131072"},
			{Name: "shots", Default: "2", Doc: "worked examples, for the data sets whose files have some"},
		},
		Open: openHELMET,
	})
}

func openHELMET(ctx context.Context, s *evaluation.Setting, name string) (*evaluation.Samples, error) {
	sets := helmetSets()
	h := &helmet{setting: s, helmetSet: sets[slices.IndexFunc(sets, func(set helmetSet) bool { return set.name == name })]}
	length, err := strconv.Atoi(s.Options["length"])
	if err != nil || helmetLengths[length].keys == 0 {
		return nil, fmt.Errorf("option length: got %q, want 8192, 16384, 32768, 65536 or 131072", s.Options["length"])
	}
	if h.shots, err = strconv.Atoi(s.Options["shots"]); err != nil || h.shots < 0 {
		return nil, fmt.Errorf("option shots: got %q, want a number from 0", s.Options["shots"])
	}
	h.docs = helmetLengths[length].cited
	files := []string{name}
	if h.file != nil {
		files = append(files, h.file(length))
	}
	path, err := findFile(ctx, s, files...)
	if err != nil {
		return nil, err
	}
	if h.score == nil {
		h.rater, err = newRater(h.metric)
	} else {
		h.alce, err = readALCEPrompt(filepath.Dir(path), name)
	}
	if err != nil {
		return nil, err
	}
	if h.helmetSet.train != nil && h.shots > 0 {
		if h.train, err = h.examples(ctx, h.helmetSet.train(length)); err != nil {
			return nil, err
		}
	}
	count, err := countRows(path, s.Samples)
	if err != nil {
		return nil, err
	}
	if h.name == "kilt_popqa" {
		count = 0 // some are left out
	}
	return &evaluation.Samples{Metric: h.metric, Count: count, Each: s.Take(rowItems(path, h.wanted, nil, h.rowSample))}, nil
}

// popularity is the limit of log10(s_pop) below which entities of PopQA are asked about
// (popqa_3 in HELMET's configs).
const popularity = 3

// wanted leaves out PopQA's popular entities.
func (h *helmet) wanted(row datasets.Row) bool {
	var views float64
	if h.name != "kilt_popqa" || !row.Has("s_pop") || row.Decode("s_pop", "a number", &views) != nil {
		return true
	}
	return math.Log10(views) < popularity
}

// examples reads the rows that worked examples are drawn from, one of each question.
func (h *helmet) examples(ctx context.Context, name string) ([]datasets.Row, error) {
	path, err := findFile(ctx, h.setting, h.name+"_train", name)
	if err != nil {
		return nil, fmt.Errorf("%w; shots=0 asks without worked examples", err)
	}
	var rows []datasets.Row
	seen := map[string]bool{}
	for row, err := range fileRows(path) {
		if err != nil {
			return nil, err
		}
		question, err := row.Text("question")
		if err != nil {
			return nil, row.Fail(err)
		}
		if !seen[question] && h.wanted(row) {
			seen[question] = true
			rows = append(rows, row)
		}
	}
	if len(rows) <= h.shots { // one of them may be the question itself
		return nil, fmt.Errorf("%s: %d questions, want more than %d", path, len(rows), h.shots)
	}
	return rows, nil
}

func (h *helmet) rowSample(ctx context.Context, row datasets.Row) (*evaluation.Sample, error) {
	values, err := h.read(h, row)
	if err != nil {
		return nil, err
	}
	score, references, err := h.rating(row)
	if err != nil {
		return nil, err
	}
	most := maxNew(h.setting, h.maxNew)
	ids, err := encodeContext(ctx, h.setting, h.prompt, values, h.raw, most)
	if err != nil {
		return nil, err
	}
	return oneTurn(ids, most, h.stop, references, func(_ context.Context, answers []evaluation.Output) (evaluation.Scores, error) {
		return score(answers[0].Text)
	}), nil
}

// rating returns how answers to a row are scored, and its references where it has such (default_post_process of data.py).
func (h *helmet) rating(row datasets.Row) (score func(string) (evaluation.Scores, error), references []string, err error) {
	if h.score != nil {
		score, err = h.score(h, row)
		return score, nil, err
	}
	var ref scoring.Reference
	for _, field := range []string{"answer", "answers", "outputs"} {
		if row.Has(field) {
			if ref.Answers, err = row.Texts(field); err != nil {
				return nil, nil, err
			}
			break
		}
	}
	if len(ref.Answers) == 0 {
		return nil, nil, fmt.Errorf("none of the fields answer, answers and outputs has an answer")
	}
	return func(text string) (evaluation.Scores, error) {
		var ways []string // of reading the answer; the best counts
		if !h.parsedOnly {
			ways = append(ways, text)
		}
		if h.parsed != "" {
			ways = append(ways, answerAfter(text, h.parsed))
		}
		best := 0.0
		for _, way := range ways {
			scores, err := h.scores(way, ref)
			if err != nil {
				return nil, err
			}
			best = max(best, scores[h.metric])
		}
		return evaluation.Scores{h.metric: best}, nil
	}, ref.Answers, nil
}
