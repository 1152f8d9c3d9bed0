//! Words that are said in nearly every sentence, and are about nothing.
//! Never: a word of the table of concepts that means something when it stands alone.

/// English ones, as they are said.
pub(super) const ENGLISH: &str = "a an the is it are am be to of in at and or for with me my you your i we us our please can could \
    would will do does did what which who when how whats that this there some any tell give want need \
    let know much many from by as about called named s re ll m t has have like just so ok \
    okay dont not no never should turn switch put its im into on was were been today all \
    also bit little";

/// Chinese ones, and words that begin like one of the concepts and mean something else.
pub(super) const CHINESE: &str = "的 了 吗 嗎 呢 吧 啊 呀 是 我 你 您 它 请 請 帮我 帮忙 给我 把 将 一下 一个 一首 一些 一点 个 \
    什么 怎么样 怎么 多少 几 能 能不能 可以 可不可以 想 要 想要 有 和 与 在 告诉 知道 这个 那个 并 或 \
    到 还 还有 今天 请问 麻烦 不要 别 不用 成 为 里 上 下 用 让 给 关于 有关 开会 机关 公开 首 张 \
    米 秒 叫 名为 名叫 内容 点 分钟 小时 些 剩 还剩 开关 開關 没关系 關係 关系 相关";
