// Package jieba segments Chinese text into words exactly as the Python package
// jieba 0.42.1 (Sun Junyi, MIT licence) does in its default mode: the most
// probable path through the words of its dictionary, and a hidden Markov model
// over the characters that the dictionary leaves alone. The Chinese tasks of
// LongBench (Bai et al. 2023, arXiv:2308.14508) are scored on its words, so
// another segmenter, or another dictionary, gives another score.
//
// Dictionary and model are jieba's own files, read from the folder of the
// installed Python package; none of its 5 MB is linked into the program.
//
//	seg, err := jieba.Open("/usr/lib/python3/dist-packages/jieba")
//	words := seg.Cut("我来到北京清华大学") // 我 来到 北京 清华大学
package jieba
