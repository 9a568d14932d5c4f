package scoring

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"glimpse/evaluation/scoring/jieba"
)

// JiebaVariable names the environment variable with the folder of the Python
// package jieba, whose dictionary the metrics of Chinese texts read.
const JiebaVariable = "GLIMPSE_JIEBA"

// ErrNoDictionary says that Chinese text cannot be segmented.
var ErrNoDictionary = errors.New("scoring: no Chinese dictionary: set " + JiebaVariable +
	" to the folder of the Python package jieba 0.42.1 (pip install jieba), which holds dict.txt and finalseg")

func init() {
	Metrics.Add("qa_f1_zh", Metric{
		About:   "F1 of the words of Chinese texts without punctuation; best reference",
		Source:  "LongBench, Bai et al. 2023, arXiv:2308.14508, metrics.py, qa_f1_zh_score",
		Prepare: chineseReady,
		Score:   bestChinese(qaF1Chinese),
	})
	Metrics.Add("rouge_zh", Metric{
		About:   "ROUGE-L of the words of Chinese texts; best reference",
		Source:  "LongBench, Bai et al. 2023, arXiv:2308.14508, metrics.py, rouge_zh_score",
		Prepare: chineseReady,
		Score:   bestChinese(rougeChinese),
	})
}

// chinese reads the dictionary when it is first needed.
var chinese = sync.OnceValues(openDictionary)

func openDictionary() (*jieba.Segmenter, error) {
	dir := os.Getenv(JiebaVariable)
	if dir == "" {
		return nil, ErrNoDictionary
	}
	seg, err := jieba.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("scoring: %s=%s: %w", JiebaVariable, dir, err)
	}
	return seg, nil
}

func chineseReady() error {
	_, err := chinese()
	return err
}

func bestChinese(score func(seg *jieba.Segmenter, prediction, answer string) float64) func(string, Reference) (float64, error) {
	return func(prediction string, ref Reference) (float64, error) {
		seg, err := chinese()
		if err != nil {
			return 0, err
		}
		return best(func(p, a string) float64 { return score(seg, p, a) })(prediction, ref)
	}
}

func qaF1Chinese(seg *jieba.Segmenter, prediction, answer string) float64 {
	return tokenF1(wordsChinese(seg, prediction), wordsChinese(seg, answer))
}

// rougeChinese gives ROUGE the words with blanks between them.
func rougeChinese(seg *jieba.Segmenter, prediction, answer string) float64 {
	return rougeL(strings.Join(seg.Cut(prediction), " "), strings.Join(seg.Cut(answer), " "))
}

// punctuationChinese is the full-width punctuation that LongBench removes besides ASCII's.
const punctuationChinese = "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃》「」『』【】" +
	"〔〕〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏."

// wordsChinese returns the words of a text, each normalised (normalize_zh_answer),
// without those that are empty then.
func wordsChinese(seg *jieba.Segmenter, text string) []string {
	var words []string
	for _, word := range seg.Cut(text) {
		word = strings.Join(fields(remove(lower(word), punctuation+punctuationChinese)), "")
		if word != "" {
			words = append(words, word)
		}
	}
	return words
}
