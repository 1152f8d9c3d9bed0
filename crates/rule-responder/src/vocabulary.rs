//! The words that the rules know: synonyms in English and Chinese, fillers, and words that forbid,
//! postpone or ask.

use std::{collections::HashMap, sync::LazyLock};

/// Characters of the longest Chinese word.
pub(crate) const MAX_CHINESE: usize = 5;
/// The key of words without a meaning; `~?` is that of words without one in a question.
pub(crate) const FILLER: &str = "~";
/// Keys of question words, and of words with which nothing may be done now.
pub(crate) const QUESTION: &str = "@question";
pub(crate) const NOT_NOW: &str = "@not-now";
/// Keys that do not identify a service.
pub(crate) const GENERIC: &str = "get set turn on off up down current";
/// Actions that must occur in the name of the service: a description may mention others, too.
pub(crate) const ACTIONS: &str =
    "on off up down stop pause play next previous lock unlock create delete";

/// First words of English questions, beside the question words.
pub(crate) const AUXILIARIES: &str = "am are can could did do does had has have is may might \
    shall should was were will would";
/// First words of English commands.
pub(crate) const VERBS: &str = "activate add adjust begin bring change clean close create dance \
    deactivate decrease delete dim disable display drive drop enable go halt increase jump launch \
    lock lower make move open pause play print pull push put raise record remove reset restart \
    resume rotate run say send set shut skip speak spin start stop switch take turn unlock walk \
    wave write";
/// Keys of Chinese verbs, and words that mark a command after its object.
pub(crate) const CHINESE_VERBS: &str = "on off up down set play pause stop start move forward \
    backward left right create delete send say dance photo lock unlock next previous timer";
pub(crate) const AFTER_OBJECT: &str = "把 将 设为 設為 设成 调到 調到 调成 改成 换成";

/// Keys, each with the words that have it besides itself.
const TABLE: &str = "
    ~ a an and for hello hey hi in its kindly me my of ok okay please the this to with 请 請 请你 帮我
    幫我 帮忙 麻烦 麻烦你 给我 把 将 的 一下 一个 个 吧 到 为 你好 您好; ~? am are at be can could do does give has have
    how i is it know like many much tell that there today was we will would you your 了 是 有 还 还有
    剩 剩下 我 你 您 告诉 告诉我 请问 想 想知道 知道 怎么样 啊 今天 有没有; @question ? ？ what whats which who whom whose why
    where how 什么 什麼 多少 谁 誰 哪 哪里 怎么 怎样 是否 是不是 能不能 可不可以 要不要 有没有 几 幾 吗 嗎 呢; @not-now avoid cannot
    dont except forget hardly instead neither never no nobody none nor not nothing without 不 别 別
    没 沒 没有 勿 莫 甭 未 无需 無需 禁止 不要 不用 算了 after as before case every if once provided suppose unless
    until when whenever while 如果 要是 假如 倘若 若 当 时候 的时候 什么时候 一旦 只要 除非 万一 每天 每 就 afternoon
    afterwards eventually evening friday later midnight monday morning night noon oclock pm
    saturday soon sunday thursday tomorrow tonight tuesday wait wednesday week weekend yesterday
    明天 后天 後天 昨天 今晚 今早 明早 明晚 早上 上午 中午 下午 晚上 半夜 待会 待会儿 等 等会 等会儿 等一会 等一会儿 等下 一会 一会儿 稍后 以后 之后 后 後 过
    再 下周 周末 星期 礼拜; get check fetch query read report retrieve show 获取 獲取 查询 查詢 读取 查看 看看 查一下; set
    adjust change 设置 設置 设定 设为 設為 设成 调到 調到 调成 调整 调节 改成 换成 调 調; turn switch 开关 開關; on activate
    enable open 打开 打開 开启 開啟 点亮 拉开 开 開; off close deactivate disable shut 关闭 關閉 关掉 關掉 关上 關上 熄灭 拉上
    关 關; up increase raise louder brighter 调高 調高 调大 調大 升高 提高 增加; down decrease lower reduce
    quieter dimmer 调低 調低 调小 調小 降低 减少; current currently now 现在 現在 当前 當前 目前; start begin launch
    run 启动 啟動 开始 開始; stop halt 停止 停下 停; pause 暂停 暫停; play 播放; next skip 下一首 下一个 下一曲; previous
    上一首 上一个 上一曲; lock 上锁 锁上 锁定 锁; unlock 解锁 解鎖 开锁 開鎖; create make new 创建 創建 新建 建立; delete erase
    remove 删除 刪除 移除 清除; send 发送 發送; say speak 朗读 说 說 念; move drive go walk 移动 移動 走; forward
    ahead 向前 往前 前进; backward back 向后 向後 往后 后退; left 向左 往左 左转 左; right 向右 往右 右转 右; dance 跳舞 跳个舞;
    photo picture photograph 拍照 照片 拍; time clock 时间 時間 几点 幾點 报时; date day weekday 日期 几号 幾號 星期几
    周几 礼拜几; light bulb lamp led 灯光 燈光 电灯 台灯 灯 燈; brightness 亮度; color colour 颜色 顏色; music song
    track 音乐 音樂 歌曲 歌; volume loudness 音量; battery 电量 電量 电池 電池; temperature cold hot temp warm 温度
    溫度 气温 几度 多少度; humidity humid 湿度 濕度; weather forecast 天气 天氣; door 大门 门 門; window 窗户 窗;
    curtain blind 窗帘 窗簾; fan 风扇 風扇 电扇; conditioner 空调 空調; alarm 闹钟 鬧鐘; timer countdown 倒计时 倒計時
    计时器 定时器; file document 文件 文档; message 消息 短信; status state 状态 狀態; red 红色 紅色 红; green 绿色 綠色 绿;
    blue 蓝色 藍色 蓝; second sec 秒 秒钟; minute min 分钟 分鐘; hour 小时 小時; metre meter 米; percent
    percentage %; degree celsius ° 度 摄氏度;
";

pub(crate) static KEYS: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let mut keys = HashMap::new();
    for row in TABLE.split(';') {
        let mut words = row.split_whitespace();
        let key = words.next().unwrap_or_default();
        keys.insert(key, key);
        for word in words {
            keys.entry(word).or_insert(key);
        }
    }
    keys
});

/// The key of an English word: that of the table, else its stem.
pub(crate) fn english(word: &str) -> &str {
    let word = word.strip_suffix("'s").unwrap_or(word);
    if word.ends_with("n't") {
        return NOT_NOW;
    }
    let stem = word.strip_suffix('s').unwrap_or(word);
    let is_stem = stem.len() > 2 && !stem.ends_with('s');
    let stem = if is_stem { stem } else { word };
    KEYS.get(word).or_else(|| KEYS.get(stem)).unwrap_or(&stem)
}

/// Whether a list of words contains this one.
pub(crate) fn lists(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|listed| listed == word)
}
